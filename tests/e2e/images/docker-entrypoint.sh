#!/bin/bash
# Entrypoint of the lab's MariaDB image. It behaves as the official image's: the variables MARIADB_* and MYSQL_* and their _FILE
# variants, /docker-entrypoint-initdb.d, and the change from root to the user mysql.
#
# Supported variables: ROOT_PASSWORD, ALLOW_EMPTY_ROOT_PASSWORD (MYSQL_ALLOW_EMPTY_PASSWORD), RANDOM_ROOT_PASSWORD, ROOT_HOST,
# DATABASE, USER, PASSWORD, INITDB_SKIP_TZINFO; with MARIADB_ only: USER_HOST, MYSQL_LOCALHOST_USER, MYSQL_LOCALHOST_GRANTS,
# HEALTHCHECK_GRANTS. Not supported: password hashes and replication set up by variables, which are refused, and initialisation
# from a backup. MARIADB_AUTO_UPGRADE upgrades the system tables, and creates the users of healthcheck.sh if they are missing;
# unlike the official image, it dumps no system tables before.
#
# Without `set -u`: users' scripts in /docker-entrypoint-initdb.d may be sourced into this shell.
set -eo pipefail
shopt -s nullglob

log() {
    printf '%s [%s] [Entrypoint]: %s\n' "$(date --rfc-3339=seconds)" "$1" "${*:2}"
}
# Scripts in /docker-entrypoint-initdb.d use these three and docker_process_sql.
mysql_note() { log Note "$@"; }
mysql_warn() { log Warn "$@" >&2; }
mysql_error() {
    log ERROR "$@" >&2
    exit 1
}

# Reads the variable $1 from the file that $1_FILE names.
read_file_of() {
    local file=${1}_FILE
    [[ ${!file} ]] || return 0
    [[ ! ${!1} ]] || mysql_error "$1 and $file are both set. Keep one of them."
    [[ -r ${!file} ]] || mysql_error "$file names ${!file}, which is not there or cannot be read."
    export "$1=$(<"${!file}")"
    unset "$file"
}

# Gives MARIADB_$1 and MYSQL_$1 the same value: that of the former, else of the latter, else the default $2.
setting() {
    local new=MARIADB_$1 old=MYSQL_$1
    read_file_of "$new"
    read_file_of "$old"
    local value=${!new:-${!old:-$2}}
    export "$new=$value" "$old=$value"
}

read_settings() {
    MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=${MARIADB_ALLOW_EMPTY_ROOT_PASSWORD:-$MYSQL_ALLOW_EMPTY_PASSWORD}
    setting ROOT_HOST %
    setting USER_HOST %
    local name
    for name in ROOT_PASSWORD ALLOW_EMPTY_ROOT_PASSWORD RANDOM_ROOT_PASSWORD INITDB_SKIP_TZINFO DATABASE USER PASSWORD; do
        setting "$name"
    done
    for name in MARIADB_ROOT_PASSWORD_HASH MARIADB_PASSWORD_HASH MARIADB_REPLICATION_USER MARIADB_MASTER_HOST; do
        local file=${name}_FILE
        [[ ! ${!name} && ! ${!file} ]] || mysql_error "$name is set, and this image does not support it."
    done
}

# Asks the server for its settings, which also shows whether it accepts its configuration.
read_configuration() {
    local settings errors
    if ! settings=$("$@" --verbose --help 2>/dev/null); then
        errors=$("$@" --verbose --help 2>&1 >/dev/null) || true
        mysql_error "The server does not accept its configuration:"$'\n'"$errors"
    fi
    DATADIR=$(value_of datadir "$settings")
    SOCKET=$(value_of socket "$settings")
    [[ $DATADIR && $SOCKET ]] || mysql_error "The server does not report its data directory and its socket."
}

value_of() {
    local pattern=$'\n'"$1"$'[ \t]+([^\n]+)'
    [[ ! $2 =~ $pattern ]] || printf '%s\n' "${BASH_REMATCH[1]}"
}

give_folders_to_mysql() {
    mkdir -p "$DATADIR" "${SOCKET%/*}"
    find "$DATADIR" ! -user mysql -exec chown mysql: {} +
    find "${SOCKET%/*}" -maxdepth 0 ! -user mysql -exec chown mysql: {} +
}

# An SQL string, for a session without NO_BACKSLASH_ESCAPES.
quoted() {
    local backslash=\\ quote=\' newline=$'\n' text=$1
    text=${text//"$backslash"/"$backslash$backslash"}
    text=${text//"$quote"/"$backslash$quote"}
    text=${text//"$newline"/"${backslash}n"}
    printf "'%s'" "$text"
}

identifier() {
    echo "\`${1//\`/\`\`}\`"
}

# In a grant, _ and % in a database's name are wildcards.
granted_database() {
    local backslash=\\ text=$1 character
    for character in "$backslash" _ %; do
        text=${text//"$character"/"$backslash$character"}
    done
    identifier "$text"
}

# The client, as root. The password is in its environment, because every user can read arguments.
docker_process_sql() {
    local password=$MARIADB_ROOT_PASSWORD
    if [[ $1 == --dont-use-mysql-root-password ]]; then
        password=
        shift
    fi
    [[ ! $MARIADB_DATABASE ]] || set -- --database="$MARIADB_DATABASE" "$@"
    MYSQL_PWD=$password mariadb --protocol=socket --user=root --host=localhost --socket="$SOCKET" "$@"
}

require_password() {
    [[ $MARIADB_ROOT_PASSWORD || $MARIADB_ALLOW_EMPTY_ROOT_PASSWORD || $MARIADB_RANDOM_ROOT_PASSWORD ]] ||
        mysql_error "There is no database yet, and no variable sets root's password. Set one of" \
            "MARIADB_ROOT_PASSWORD, MARIADB_ALLOW_EMPTY_ROOT_PASSWORD and MARIADB_RANDOM_ROOT_PASSWORD."
    [[ $MARIADB_USER != root ]] ||
        mysql_error "MARIADB_USER is root, which exists already. Set MARIADB_ROOT_PASSWORD, and remove MARIADB_USER."
    if [[ $MARIADB_USER && ! $MARIADB_PASSWORD || ! $MARIADB_USER && $MARIADB_PASSWORD ]]; then
        mysql_warn "Of MARIADB_USER and MARIADB_PASSWORD only one is set: no user is created."
    fi
}

create_system_tables() {
    local argument arguments=()
    for argument in "${@:2}"; do
        # mariadb-install-db splits an argument at its blanks.
        if [[ $argument == *[[:space:]]* ]]; then
            mysql_warn "An argument with blanks is not passed to mariadb-install-db."
        else
            arguments+=("$argument")
        fi
    done
    mariadb-install-db --datadir="$DATADIR" --rpm --cross-bootstrap --auth-root-authentication-method=normal \
        --skip-test-db "${arguments[@]}" --default-time-zone=SYSTEM --skip-log-bin --wsrep-on=OFF
}

start_temporary_server() {
    "$@" --skip-networking --socket="$SOCKET" --default-time-zone=SYSTEM --skip-slave-start \
        --wsrep-on=OFF --loose-wsrep-provider=none --loose-innodb-buffer-pool-load-at-startup=OFF &
    server=$!
    local deadline=$((SECONDS + 60))
    until docker_process_sql --dont-use-mysql-root-password --database=mysql <<<'SELECT 1' &>/dev/null; do
        kill -0 "$server" 2>/dev/null || mysql_error "The temporary server has ended. Its log is above."
        ((SECONDS < deadline)) || mysql_error "The temporary server does not answer within 60 s."
        sleep 0.2
    done
}

stop_temporary_server() {
    kill "$server"
    wait "$server"
}

load_time_zones() {
    [[ ! $MARIADB_INITDB_SKIP_TZINFO ]] || return 0
    mariadb-tzinfo-to-sql --skip-write-binlog /usr/share/zoneinfo |
        docker_process_sql --dont-use-mysql-root-password --database=mysql
}

system_accounts() {
    local password root
    password=$(quoted "$MARIADB_ROOT_PASSWORD")
    echo "DROP USER IF EXISTS root@'127.0.0.1', root@'::1';"
    echo "SET PASSWORD FOR root@localhost = PASSWORD($password);"
    if [[ $MARIADB_ROOT_HOST != localhost ]]; then
        root=root@$(quoted "$MARIADB_ROOT_HOST")
        echo "CREATE USER $root IDENTIFIED BY $password;"
        echo "GRANT ALL ON *.* TO $root WITH GRANT OPTION;"
        echo "GRANT PROXY ON ''@'%' TO $root WITH GRANT OPTION;"
    fi
    if [[ $MARIADB_MYSQL_LOCALHOST_USER ]]; then
        echo "CREATE USER mysql@localhost IDENTIFIED VIA unix_socket;"
        [[ ! $MARIADB_MYSQL_LOCALHOST_GRANTS ]] ||
            echo "GRANT $MARIADB_MYSQL_LOCALHOST_GRANTS ON *.* TO mysql@localhost;"
    fi
}

wanted_accounts() {
    local user
    [[ ! $MARIADB_DATABASE ]] || echo "CREATE DATABASE IF NOT EXISTS $(identifier "$MARIADB_DATABASE");"
    if [[ $MARIADB_USER && $MARIADB_PASSWORD ]]; then
        user=$(quoted "$MARIADB_USER")@$(quoted "$MARIADB_USER_HOST")
        echo "CREATE USER $user IDENTIFIED BY $(quoted "$MARIADB_PASSWORD");"
        [[ ! $MARIADB_DATABASE ]] || echo "GRANT ALL ON $(granted_database "$MARIADB_DATABASE").* TO $user;"
    fi
}

# The users of healthcheck.sh. Their password is only in a file in this data directory: members that copy the data have the users,
# but not the file.
healthcheck_accounts() {
    local host password
    password=$(pwgen --secure --numerals --capitalize 32 1)
    for host in localhost 127.0.0.1 ::1; do
        echo "CREATE OR REPLACE USER healthcheck@'$host' IDENTIFIED BY '$password';"
        echo "GRANT ${MARIADB_HEALTHCHECK_GRANTS:-USAGE} ON *.* TO healthcheck@'$host';"
    done
    (umask 077 && printf '[mariadb-client]\nsocket=%s\nuser=healthcheck\npassword=%s\n' "$SOCKET" "$password" \
        >"$DATADIR/.my-healthcheck.cnf")
}

# The client reads passwords from its standard input. System accounts stay out of the binary log.
create_accounts() {
    if [[ $MARIADB_RANDOM_ROOT_PASSWORD ]]; then
        MARIADB_ROOT_PASSWORD=$(pwgen --secure --numerals --capitalize 32 1)
        export MARIADB_ROOT_PASSWORD MYSQL_ROOT_PASSWORD=$MARIADB_ROOT_PASSWORD
        mysql_note "GENERATED ROOT PASSWORD: $MARIADB_ROOT_PASSWORD"
    fi
    {
        echo "SET NAMES utf8mb4;"
        echo "SET SESSION sql_mode = '', SESSION sql_log_bin = 0;"
        system_accounts
        healthcheck_accounts
        echo "SET SESSION sql_log_bin = 1;"
        wanted_accounts
    } | docker_process_sql --dont-use-mysql-root-password --database=mysql --binary-mode
}

run_initialisers() {
    local file
    for file; do
        case $file in
        *.sh)
            mysql_note "Running $file"
            if [[ -x $file ]]; then
                "$file"
            else
                # shellcheck source=/dev/null
                . "$file"
            fi ;;
        *.sql) mysql_note "Running $file" && docker_process_sql <"$file" ;;
        *.sql.gz) mysql_note "Running $file" && gzip -dc "$file" | docker_process_sql ;;
        *.sql.xz) mysql_note "Running $file" && xz -dc "$file" | docker_process_sql ;;
        *.sql.zst) mysql_note "Running $file" && zstd -dc "$file" | docker_process_sql ;;
        *) mysql_warn "Ignoring $file" ;;
        esac
    done
}

initialise() {
    require_password
    mysql_note "Initializing database files"
    create_system_tables "$@"
    mysql_note "Starting temporary server"
    start_temporary_server "$@"
    load_time_zones
    create_accounts
    run_initialisers /docker-entrypoint-initdb.d/*
    mysql_note "Stopping temporary server"
    stop_temporary_server
    mysql_note "MariaDB init process done. Ready for start up."
}

needs_upgrade() {
    local old new info=$DATADIR/mariadb_upgrade_info
    # The name of this file in 10.11.
    [[ -f $info ]] || info=$DATADIR/mysql_upgrade_info
    [[ -f $DATADIR/.my-healthcheck.cnf && -f $info ]] || return 0
    old=$(head -c 20 "$info") new=$("$1" --version | sed 's/.*Ver \([0-9.]*\).*/\1/')
    [[ $(printf '%s\n' "${old%.*}" "${new%.*}" | sort -V | tail -n 1) != "${old%.*}" ]]
}

# The server has not joined its cluster yet, so changes are made in this data directory only.
upgrade() {
    mysql_note "Starting temporary server"
    start_temporary_server "$@" --skip-grant-tables
    if [[ ! -f $DATADIR/.my-healthcheck.cnf ]]; then
        mysql_note "Creating healthcheck users"
        { echo "SET SESSION sql_log_bin = 0; FLUSH PRIVILEGES;" && healthcheck_accounts; } |
            docker_process_sql --dont-use-mysql-root-password --binary-mode
        stop_temporary_server
        start_temporary_server "$@" --skip-grant-tables
    fi
    mysql_note "Starting mariadb-upgrade"
    mariadb-upgrade --upgrade-system-tables --socket="$SOCKET"
    mysql_note "Finished mariadb-upgrade"
    stop_temporary_server
}

# The server would keep passwords in its environment.
forget_passwords() {
    unset MARIADB_ROOT_PASSWORD MYSQL_ROOT_PASSWORD MARIADB_PASSWORD MYSQL_PASSWORD MYSQL_PWD
}

only_asks() {
    local argument
    for argument; do
        case $argument in
        -\? | --help | --print-defaults | -V | --version) return 0 ;;
        esac
    done
    return 1
}

[[ $1 != -* ]] || set -- mariadbd "$@"
if [[ $1 == mariadbd || $1 == mysqld ]] && ! only_asks "$@"; then
    read_configuration "$@"
    read_settings
    if ((EUID == 0)); then
        give_folders_to_mysql
        mysql_note "Switching to dedicated user 'mysql'"
        exec gosu mysql "${BASH_SOURCE[0]}" "$@"
    fi
    if [[ ! -d $DATADIR/mysql ]]; then
        initialise "$@"
    elif [[ ${MARIADB_AUTO_UPGRADE:-0} != 0 ]] && needs_upgrade "$@"; then
        upgrade "$@"
    fi
    forget_passwords
fi
exec "$@"

#!/bin/sh
# Tests the entrypoint of the MariaDB image without Kubernetes: in the image's root file system, in separate namespaces, with only
# loopback as network. All processes and mounts end with the namespaces.
#
# usage: selftest.sh             (root; takes the image from build.sh)
#
# Exit status: 1 something is wrong with the image, 3 or 4 from build.sh.
set -eu
umask 022
unset CDPATH

say() { printf '%s\n' "$*" >&2; }

in_namespaces() {
    cd "$(dirname "$0")"
    # A separate assignment, so that a failed build ends this script.
    folder=$(./build.sh)
    root=$(mktemp -d)
    trap 'rm -rf --one-file-system "$root"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    layer=$(tar --list --file="$folder/mariadb.tar" | grep '/layer\.tar$')
    tar --extract --to-stdout --file="$folder/mariadb.tar" "$layer" | tar --extract --numeric-owner --directory="$root"
    unshare --mount --pid --net --fork --kill-child "$PWD/${0##*/}" --inside "$root"
}

# Every printable character, a blank at both ends, and some that take more than one byte.
# shellcheck disable=SC1003,SC2016
nasty=' !"#$%&'\''()*+,-./0123456789:;<=>?@ABCXYZ[\]^_`abcxyz{|}~ \n \\ é€😀 '
database='a_b%`c'

ok() { say "ok: $*"; }

wrong() {
    say "wrong: $*"
    tail -n 30 "$log" >&2
    exit 1
}

says() { grep -q -F -e "$1" "$log" || wrong "the log lacks: $1"; }

never_says() { ! grep -q -F -e "$1" "$log" || wrong "the log has: $1"; }

# in_image [NAME=VALUE...] COMMAND [ARGUMENT...]: runs it in a clean environment, as in a container. Replaces the shell that calls
# it.
in_image() {
    exec chroot "$root" /usr/bin/env -i PATH="$PATH" LANG=C.UTF-8 "$@" >"$log" 2>&1
}

entrypoint() { (in_image "$@"); }

checks() { chroot "$root" /usr/bin/env -i PATH="$PATH" healthcheck.sh "$@" >"$root/checks" 2>&1; }

start() {
    # Earlier messages do not count.
    : >"$log"
    in_image "$@" &
    server=$!
    tries=0
    until grep -q 'ready for connections' "$log" && grep -q "port: $port " "$log"; do
        kill -0 "$server" 2>/dev/null || wrong "the server has ended"
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || wrong "the server is not ready within 60 s"
        sleep 0.1
    done
}

stop() {
    kill "$server"
    wait "$server" || wrong "the server stops with status $?"
}

# as USER PASSWORD SQL: runs SQL over TCP, as clients in other pods do.
as() {
    MYSQL_PWD=$2 chroot "$root" mariadb --no-defaults --default-character-set=utf8mb4 --batch --raw --skip-column-names \
        --protocol=tcp --host=127.0.0.1 --port="$port" --user="$1" --execute="$3"
}

expect() {
    [ "$1" = "$2" ] || wrong "$3 is '$1' and should be '$2'"
}

refuses() {
    if entrypoint "$@"; then wrong "it does not fail"; fi
    [ ! -e "$root/var/lib/mysql/mysql" ] || wrong "it has touched the data directory"
}

fresh() {
    rm -rf "$root/var/lib/mysql"
    mkdir "$root/var/lib/mysql"
}

# Replaces every program that could get a password as an argument by a script that records its arguments.
record_arguments() {
    for program in mariadb mariadbd mariadb-install-db mariadb-tzinfo-to-sql; do
        real=$(chroot "$root" /bin/sh -c "command -v $program")
        # shellcheck disable=SC2016
        printf '#!/bin/sh\nprintf "%%s\\n" "$0" "$@" >>/arguments\nexec %s "$@"\n' "$real" \
            >"$root/usr/local/bin/$program"
        chmod 755 "$root/usr/local/bin/$program"
    done
    : >"$root/arguments"
    chmod 666 "$root/arguments"
}

write_initialisers() {
    cd "$root/docker-entrypoint-initdb.d"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho "executed with $MYSQL_DATABASE"\n' >1.sh
    chmod 755 1.sh
    echo 'docker_process_sql <<<"CREATE TABLE t (n INT PRIMARY KEY, s TEXT)"' >2.sh
    echo "INSERT INTO t VALUES (1, 'plain é');" >3.sql
    echo "INSERT INTO t VALUES (2, 'gzip');" | gzip >4.sql.gz
    echo 'nothing' >5.txt
    cd "$OLDPWD"
}

write_configuration() {
    cat >"$root/etc/mysql/conf.d/galera.cnf" <<'END'
[mariadbd]
wsrep_on = ON
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_cluster_address = gcomm://
wsrep_node_address = 127.0.0.1
wsrep_status_file = wsrep_status.json
binlog_format = ROW
END
}

a_galera_node_is_initialised() {
    fresh
    write_configuration
    write_initialisers
    printf '%s\n' "$nasty" >"$root/secret"
    chmod 600 "$root/secret"
    start MARIADB_ROOT_PASSWORD_FILE=/secret MYSQL_DATABASE="$database" MARIADB_USER="it's" \
        MYSQL_PASSWORD="$nasty" docker-entrypoint.sh mariadbd
    expect "$(as root "$nasty" 'SELECT COUNT(*) FROM mysql.time_zone_name WHERE name = "UTC"')" 1 "time zones"
    expect "$(as root "$nasty" "SHOW STATUS LIKE 'wsrep_local_state_comment'")" \
        "$(printf 'wsrep_local_state_comment\tSynced')" "the state"
    expect "$(as root "$nasty" "SELECT GROUP_CONCAT(user, '@', host ORDER BY user, host) FROM mysql.user")" \
        "healthcheck@127.0.0.1,healthcheck@::1,healthcheck@localhost,it's@%,mariadb.sys@localhost,root@%,root@localhost" \
        "the list of users"
    ok "a node is initialised and starts, with every printable character in a password"

    expect "$(as "it's" "$nasty" "SELECT GROUP_CONCAT(s ORDER BY n) FROM \`a_b%\`\`c\`.t")" 'plain é,gzip' "the table"
    says "executed with $database"
    says "Ignoring /docker-entrypoint-initdb.d/5.txt"
    expect "$(as root "$nasty" 'SELECT db FROM mysql.db')" 'a\_b\%`c' "what the user may use"
    ok "scripts ran, and the user may use its database and no other"

    ! grep -q -F -e 'abcxyz' "$root/arguments" || wrong "an argument holds a password"
    ! grep -q -F -e 'abcxyz' "$log" || wrong "the log holds a password"
    checks --connect --innodb_initialized --galera_online || wrong "$(cat "$root/checks")"
    rm "$root/var/lib/mysql/.my-healthcheck.cnf"
    checks --connect || wrong "connect fails"
    ! checks --connect --galera_online || wrong "galera_online passes without a login"
    grep -q "healthcheck galera_online failed" "$root/checks" || wrong "it does not name the failed test"
    ok "healthcheck.sh passes, and without its file it only sees that the server listens"

    # shellcheck disable=SC2012
    expect "$(ls -ld --numeric-uid-gid "/proc/$server" | cut -d ' ' -f 3)" 999 "the server's user"
    ! tr '\0' '\n' <"/proc/$server/environ" | grep -q abcxyz || wrong "the server's environment holds a password"
    ok "no password is in an argument, in the log or in the server's environment"
    stop
}

a_second_start_leaves_the_data_alone() {
    port=3307
    start MARIADB_ROOT_PASSWORD=other MARIADB_DATABASE=other docker-entrypoint.sh --port=3307
    never_says "Initializing database files"
    never_says "Running /docker-entrypoint-initdb.d"
    expect "$(as root "$nasty" "SELECT COUNT(*) FROM \`a_b%\`\`c\`.t")" 2 "the number of rows"
    stop
    port=3306
    ok "a second start initialises nothing, and arguments alone are arguments of mariadbd"
}

system_tables_are_upgraded_when_asked() {
    # The image of 11.4 does not have it.
    [ -e "$root/usr/bin/mariadb-upgrade" ] || return 0
    rm "$root"/var/lib/mysql/m*_upgrade_info
    start MARIADB_AUTO_UPGRADE=1 docker-entrypoint.sh mariadbd
    says "Creating healthcheck users"
    says "Finished mariadb-upgrade"
    checks --connect --innodb_initialized --galera_online || wrong "$(cat "$root/checks")"
    expect "$(as root "$nasty" "SELECT COUNT(*) FROM \`a_b%\`\`c\`.t")" 2 "the number of rows"
    stop
    start MARIADB_AUTO_UPGRADE=1 docker-entrypoint.sh mariadbd
    never_says "temporary server"
    stop
    ok "system tables are upgraded when asked to, once"
}

a_random_password_is_printed() {
    fresh
    rm "$root"/docker-entrypoint-initdb.d/*
    start MYSQL_RANDOM_ROOT_PASSWORD=yes MARIADB_INITDB_SKIP_TZINFO=1 MARIADB_MYSQL_LOCALHOST_USER=1 \
        MARIADB_MYSQL_LOCALHOST_GRANTS='RELOAD, PROCESS' MARIADB_ROOT_HOST=localhost docker-entrypoint.sh mariadbd
    password=$(sed -n 's/.*GENERATED ROOT PASSWORD: //p' "$log")
    users=$(MYSQL_PWD=$password chroot "$root" mariadb --user=root --batch --skip-column-names --execute="
        SELECT GROUP_CONCAT(user, '@', host ORDER BY user, host) FROM mysql.user")
    expect "$users" "healthcheck@127.0.0.1,healthcheck@::1,healthcheck@localhost,mariadb.sys@localhost,mysql@localhost,root@localhost" \
        "the list of users"
    stop
    ok "a random password is printed, and root stays on localhost when asked to"
}

mistakes_are_reported() {
    fresh
    rm "$root/etc/mysql/conf.d/galera.cnf"
    refuses docker-entrypoint.sh mariadbd
    says "no variable sets root's password. Set one of MARIADB_ROOT_PASSWORD"
    refuses MARIADB_ROOT_PASSWORD=a MARIADB_ROOT_PASSWORD_FILE=/secret docker-entrypoint.sh mariadbd
    says "MARIADB_ROOT_PASSWORD and MARIADB_ROOT_PASSWORD_FILE are both set. Keep one of them."
    refuses MARIADB_ROOT_PASSWORD_FILE=/none docker-entrypoint.sh mariadbd
    says "MARIADB_ROOT_PASSWORD_FILE names /none, which is not there or cannot be read."
    refuses MARIADB_ROOT_PASSWORD=a MARIADB_USER=root MARIADB_PASSWORD=b docker-entrypoint.sh mariadbd
    says "MARIADB_USER is root, which exists already."
    refuses MARIADB_ROOT_PASSWORD=a MARIADB_ROOT_PASSWORD_HASH=b docker-entrypoint.sh mariadbd
    says "MARIADB_ROOT_PASSWORD_HASH is set, and this image does not support it."
    printf '[mariadbd]\nno-such-option = 1\n' >"$root/etc/mysql/conf.d/wrong.cnf"
    refuses MARIADB_ROOT_PASSWORD=a docker-entrypoint.sh mariadbd
    says "The server does not accept its configuration:"
    says "unknown variable 'no-such-option=1'"
    rm "$root/etc/mysql/conf.d/wrong.cnf"
    ok "mistakes are reported, and the data directory stays empty"
}

other_commands_are_run() {
    entrypoint docker-entrypoint.sh mariadbd --version
    says "Ver ${GATERA_MARIADB:-10.11}."
    entrypoint docker-entrypoint.sh id -un
    says root
    [ ! -e "$root/var/lib/mysql/mysql" ] || wrong "a database was created"
    ok "other commands are run unchanged"
}

inside() {
    root=$1
    log=$root/log
    port=3306
    mount -t proc proc "$root/proc"
    mount -t proc proc /proc
    mount --rbind /dev "$root/dev"
    # With `ip` from the image, because this machine may not have it.
    chroot "$root" ip link set lo up
    trap 'exit 143' TERM
    record_arguments
    a_galera_node_is_initialised
    a_second_start_leaves_the_data_alone
    system_tables_are_upgraded_when_asked
    a_random_password_is_printed
    mistakes_are_reported
    other_commands_are_run
}

case ${1-} in
--inside) inside "$2" ;;
*) in_namespaces ;;
esac

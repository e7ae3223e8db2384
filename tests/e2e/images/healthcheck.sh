#!/bin/bash
# The check for probes in the lab's MariaDB image. It gives the answers of the official image's script that probes rely on.
#
# usage: healthcheck.sh [OPTION...] TEST...
#
# Tests, in the order in which they are given: --connect, --innodb_initialized, --innodb_buffer_pool_loaded, --galera_online,
# --galera_ready. Options: --su-mysql and --su=USER (which start the script again as that user), --datadir=FOLDER.
# The client reads .my-healthcheck.cnf in the data directory, if there is one, and otherwise logs in as the user of the process.
# Exit status: 0 all tests passed; 1 a test failed, whose name is on stderr.
set -o pipefail

datadir=/var/lib/mysql
connected=

client() {
    local options=()
    [[ ! -f $datadir/.my-healthcheck.cnf ]] || options=(--defaults-extra-file="$datadir/.my-healthcheck.cnf")
    mariadb "${options[@]}" --skip-ssl --skip-ssl-verify-server-cert --batch --skip-column-names "$@"
}

value_of() {
    client --protocol=socket \
        --execute="SELECT variable_value FROM information_schema.global_status WHERE variable_name = '$1'"
}

# The server listens. A refused login proves that, too.
connect() {
    local answer
    answer=$(client --protocol=socket --execute='SELECT @@skip_networking' 2>/dev/null)
    [[ $answer ]] || answer=$(client --protocol=tcp --host=127.0.0.1 --execute='SELECT @@skip_networking' 2>&1)
    # Access denied, an expired password, a locked account, too many connections of this user.
    [[ $answer == 0 || $answer =~ 'ERROR '(1[0-9]+\ \(28000\)|1820|4151|1226) ]]
    connected=$?
    return "$connected"
}

innodb_initialized() {
    [[ $(client --protocol=socket --execute="SELECT COUNT(*) FROM information_schema.engines
        WHERE engine = 'InnoDB' AND support IN ('YES', 'DEFAULT', 'ENABLED')") == 1 ]]
}

innodb_buffer_pool_loaded() { [[ $(value_of Innodb_buffer_pool_load_status) == *'load completed'* ]]; }

# The server is Synced. A donor is not.
galera_online() { [[ $(value_of wsrep_local_state) == 4 ]]; }

galera_ready() { [[ $(value_of wsrep_ready) == ON ]]; }

[[ $# -gt 0 ]] || { echo "usage: healthcheck.sh [OPTION...] TEST..." >&2; exit 1; }
while [[ $# -gt 0 ]]; do
    argument=$1
    shift
    case $argument in
    --su-mysql) exec gosu mysql "${BASH_SOURCE[0]}" "$@" ;;
    --su=*) exec gosu "${argument#*=}" "${BASH_SOURCE[0]}" "$@" ;;
    --datadir=*) datadir=${argument#*=} ;;
    --connect | --innodb_initialized | --innodb_buffer_pool_loaded | --galera_online | --galera_ready)
        "${argument#--}" || { echo "healthcheck ${argument#--} failed" >&2; exit 1; } ;;
    *) echo "healthcheck.sh: unknown argument $argument" >&2; exit 1 ;;
    esac
done
[[ $connected == 0 ]] || connect

#!/bin/bash
# Prepares the option file and the data. Only a member that founds the cluster gets data, from a helper server. The helper founds
# a cluster, too, and listens on Galera's port for other members (L:540-600, 700-740).
set -o errexit -o nounset -o pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /opt/bitnami/scripts/common.sh

helper=''
# shellcheck disable=SC2317 # by `trap`
stop_helper() {
    [[ -z $helper ]] || { kill "$helper" && wait "$helper"; } || :
    helper=''
}
trap stop_helper EXIT

sql() { mariadb --no-defaults --user=root --socket="$socket" --protocol=socket "$@"; }

start_helper() {
    local extra
    read -r -a extra <<<"$(extra_flags | tr '\n' ' ')"
    "$base/sbin/mysqld" --defaults-file="$conf/my.cnf" --basedir="$base" --datadir="$data" --socket="$socket" --bind-address=127.0.0.1 \
        "${extra[@]}" --skip-slave-start &
    helper=$!
    until [[ $(sql --batch --skip-column-names --execute="SHOW STATUS LIKE 'wsrep_ready'" 2>/dev/null) == *ON ]]; do
        kill -0 "$helper"
        sleep 0.5
    done
}

mkdir -p "$data"
# Mounted option files are copied at every start, and the settings are written into the copy; an address only if there is a list
# (L:374-400, 501-505).
if [[ -w "$conf" ]]; then
    [[ ! -d /bitnami/conf ]] || cp -Lr /bitnami/conf/* "$conf"
    if [[ -w "$conf/my.cnf" ]]; then
        set_option() { ini-file set --section galera --key "$1" --value "$2" "$conf/my.cnf"; }
        set_option wsrep_node_name "$(hostname)"
        set_option wsrep_node_address "$(hostname -i)"
        set_option wsrep_cluster_name "$MARIADB_GALERA_CLUSTER_NAME"
        [[ $(address) == gcomm:// ]] || set_option wsrep_cluster_address "$(address)"
        set_option wsrep_sst_method "$MARIADB_GALERA_SST_METHOD"
        set_option wsrep_sst_auth "$MARIADB_GALERA_MARIABACKUP_USER:$MARIADB_GALERA_MARIABACKUP_PASSWORD"
    fi
fi

if [[ -e "$data/mysql" ]]; then
    say "Persisted data detected. Restoring"
    founds || exit 0
    # L:517-535; the message is that of the real image, with its mistake.
    ! is_yes "$MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP" || sed -i 's/^safe_to_bootstrap: 0/safe_to_bootstrap: 1/' "$data/grastate.dat"
    grep -q '^safe_to_bootstrap: 1' "$data/grastate.dat" || {
        say "It is not safe to bootstrap form this node ('safe_to_bootstrap=0' is set in 'grastate.dat'). If you want to force" \
            "bootstrap, set the environment variable MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP=yes"
        exit 1
    }
    exit 0
fi
founds || exit 0
rm -rf "${data:?}"/*
installs=("$base/bin/mysql_install_db" --defaults-file="$conf/my.cnf" --basedir="$base" --datadir="$data"
    --auth-root-authentication-method=normal --skip-test-db)
"${installs[@]}" >"$base/tmp/install.log" 2>&1 || { cat "$base/tmp/install.log" && exit 1; }
start_helper
sql <<END
DELETE FROM mysql.global_priv WHERE user NOT IN ('mariadb.sys', 'root');
FLUSH PRIVILEGES;
CREATE USER root@'%' IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
CREATE USER '$MARIADB_GALERA_MARIABACKUP_USER'@localhost IDENTIFIED BY '$MARIADB_GALERA_MARIABACKUP_PASSWORD';
GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT ON *.* TO '$MARIADB_GALERA_MARIABACKUP_USER'@localhost;
$([[ -z $MARIADB_DATABASE ]] || echo "CREATE DATABASE IF NOT EXISTS $MARIADB_DATABASE;")
DROP USER root@localhost;
END
stop_helper

#!/bin/bash
# Shared by the three scripts of the lab's Bitnami image. They behave as the real ones in what the guard depends on: folders and
# user, files that override variables, which member founds the cluster, its address, and a helper server that founds a cluster
# while the data is prepared.
#
# The references are to bitnami/bitnami-docker-mariadb-galera@4c8fbb3, 10.5/debian-10/rootfs/opt/bitnami/scripts: mariadb-env.sh
# (E), libmariadbgalera.sh (L), mariadb-galera/{entrypoint,setup,run}.sh; and to bitnami/charts@5165628:
# mariadb-galera/templates/statefulset.yaml (C). No code is copied.
# shellcheck disable=SC2034 # the other scripts use them

base=/opt/bitnami/mariadb
volume=/bitnami/mariadb
data=$volume/data
conf=$base/conf
socket=$base/tmp/mysql.sock
# On the claim (E:180-183), although the chart mounts a folder at $base/.bootstrap (C:339).
done_file=$volume/.bootstrap/done

say() { printf 'mariadb %s ==> %s\n' "$(date +%T)" "$*" >&2; }

is_yes() { case ${1,,} in 1 | yes | true) true ;; *) false ;; esac }

# A file overrides the variable (E:82-93).
for name in MARIADB_ROOT_PASSWORD MARIADB_DATABASE MARIADB_EXTRA_FLAGS MARIADB_GALERA_CLUSTER_BOOTSTRAP \
    MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP MARIADB_GALERA_CLUSTER_ADDRESS MARIADB_GALERA_CLUSTER_NAME MARIADB_GALERA_SST_METHOD \
    MARIADB_GALERA_MARIABACKUP_USER MARIADB_GALERA_MARIABACKUP_PASSWORD; do
    file=${name}_FILE
    if [[ -n ${!file:-} && -r ${!file:-} ]]; then
        export "$name=$(<"${!file}")"
        unset "$file"
    fi
    export "$name=${!name:-}"
done
MARIADB_GALERA_CLUSTER_NAME=${MARIADB_GALERA_CLUSTER_NAME:-galera}
MARIADB_GALERA_SST_METHOD=${MARIADB_GALERA_SST_METHOD:-mariabackup}
MARIADB_GALERA_MARIABACKUP_USER=${MARIADB_GALERA_MARIABACKUP_USER:-mariabackup}
export PATH=$base/sbin:$base/bin:$PATH # (E:114)

# Another member's name resolves (L:128-164), whether it runs or not.
others_resolve() {
    local own host address
    own=$(hostname -i)
    for host in $(tr ',' ' ' <<<"${MARIADB_GALERA_CLUSTER_ADDRESS#*://}"); do
        address=$(getent hosts "${host%:*}" | awk '{print $1}')
        [[ -z $address || $address == "$own" ]] || return 0
    done
    return 1
}

# L:88-117. Since the end of 2021 FORCE_SAFETOBOOTSTRAP alone no longer founds a cluster.
founds() {
    ! is_yes "$MARIADB_GALERA_CLUSTER_BOOTSTRAP" || return 0
    [[ ! -e $done_file ]] && ! others_resolve
}

# The list of members, but only for a member that does not found the cluster and finds another (L:175-184).
address() {
    if ! founds && others_resolve; then echo "$MARIADB_GALERA_CLUSTER_ADDRESS"; else echo gcomm://; fi
}

# If the option file cannot be written, the settings are arguments (L:52-71).
extra_flags() {
    if [[ ! -w $conf/my.cnf ]]; then
        echo "--wsrep-node-name=$(hostname) --wsrep-node-address=$(hostname -i) --wsrep-cluster-name=$MARIADB_GALERA_CLUSTER_NAME" \
            "--wsrep-cluster-address=$(address) --wsrep-sst-method=$MARIADB_GALERA_SST_METHOD" \
            "--wsrep-sst-auth=$MARIADB_GALERA_MARIABACKUP_USER:$MARIADB_GALERA_MARIABACKUP_PASSWORD"
    fi
    echo "$MARIADB_EXTRA_FLAGS"
}

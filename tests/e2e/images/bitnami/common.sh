#!/bin/bash
# What the three scripts of the lab's Bitnami image share. They behave as the real ones do where a guard depends on it: folders and
# user, files over variables, which member founds, the address, and a server that founds a cluster while the data is prepared.
#
# Read in bitnami/bitnami-docker-mariadb-galera@4c8fbb3, 10.5/debian-10/rootfs/opt/bitnami/scripts: mariadb-env.sh (E),
# libmariadbgalera.sh (L), mariadb-galera/{entrypoint,setup,run}.sh. Of bitnami/charts@5165628: mariadb-galera/templates/statefulset.yaml
# (C). Nothing is copied.
# shellcheck disable=SC2034 # the others use them

base=/opt/bitnami/mariadb
volume=/bitnami/mariadb
data=$volume/data
conf=$base/conf
socket=$base/tmp/mysql.sock
# On the claim (E:180-183), whatever the chart mounts at $base/.bootstrap (C:339).
done_file=$volume/.bootstrap/done

say() { printf 'mariadb %s ==> %s\n' "$(date +%T)" "$*" >&2; }

is_yes() { case ${1,,} in 1 | yes | true) true ;; *) false ;; esac }

# A file wins over the variable (E:82-93).
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

# Another member resolves (L:128-164): it need not run.
others_resolve() {
    local own host address
    own=$(hostname -i)
    for host in $(tr ',' ' ' <<<"${MARIADB_GALERA_CLUSTER_ADDRESS#*://}"); do
        address=$(getent hosts "${host%:*}" | awk '{print $1}')
        [[ -z $address || $address == "$own" ]] || return 0
    done
    return 1
}

# L:88-117; since the end of 2021 FORCE_SAFETOBOOTSTRAP alone founds nothing.
founds() {
    ! is_yes "$MARIADB_GALERA_CLUSTER_BOOTSTRAP" || return 0
    [[ ! -e $done_file ]] && ! others_resolve
}

# The list only for a member that does not found, and is not alone (L:175-184).
address() {
    if ! founds && others_resolve; then echo "$MARIADB_GALERA_CLUSTER_ADDRESS"; else echo gcomm://; fi
}

# Where the option file cannot be written, the settings are arguments (L:52-71).
extra_flags() {
    if [[ ! -w $conf/my.cnf ]]; then
        echo "--wsrep-node-name=$(hostname) --wsrep-node-address=$(hostname -i) --wsrep-cluster-name=$MARIADB_GALERA_CLUSTER_NAME" \
            "--wsrep-cluster-address=$(address) --wsrep-sst-method=$MARIADB_GALERA_SST_METHOD" \
            "--wsrep-sst-auth=$MARIADB_GALERA_MARIABACKUP_USER:$MARIADB_GALERA_MARIABACKUP_PASSWORD"
    fi
    echo "$MARIADB_EXTRA_FLAGS"
}

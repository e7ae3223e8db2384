#!/bin/sh
# Runs when the bootstrap node prepares its database, before it founds the cluster: at the first installation, and again
# whenever this pod is replaced or its server restarts, because it keeps no data. Then members run, and founding another,
# empty cluster beside them would cost the data: whoever joins it copies its emptiness. So this waits, for ever.
# The image brings bash, which can open a connection, and no other program that can.
set -eu

answers() {
    # shellcheck disable=SC2016
    timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/4567"' "$1" 2>/dev/null
}

for member in $GALERA_MEMBERS; do
    answers "$member" || continue
    # Once a member was seen, nothing here tells a cluster that is down from one that never was.
    while :; do
        echo "$member answered: the cluster runs, and this node founds no other. Remove it: $GALERA_REMOVE" >&2
        sleep 60
    done
done

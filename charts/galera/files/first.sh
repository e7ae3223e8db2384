#!/bin/sh
# Runs when the bootstrap node prepares its database, before it founds the cluster: at the first installation, and again
# whenever its pod is replaced or its server restarts, because it keeps no data. By then there is a cluster, and founding
# another, empty one would cost the data: members that join it become empty, too. So it founds none beside a member
# that answers, and none long after the installation, because no member answers when all are down, either.
set -eu

# The port of a server that is part of a cluster. The group's port answers even while a first member still looks for this node.
answers() {
    # The image brings bash, which can open a connection, and no other program that can.
    # shellcheck disable=SC2016
    timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/${GATERA_PORT:-3306}"' "$1" 2>/dev/null
}

refuse() {
    echo "$1: this bootstrap node does not found a cluster. Remove it: $GALERA_REMOVE" >&2
    exit 1
}

if [ "$(date +%s)" -gt "$GALERA_FOUND_UNTIL" ]; then
    refuse "the installation was more than two hours ago"
fi
for member in $GALERA_MEMBERS; do
    if answers "$member"; then refuse "$member answers, so the cluster runs"; fi
done

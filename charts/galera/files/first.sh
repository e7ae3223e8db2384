#!/bin/bash
# Runs when the bootstrap node prepares its database, before it founds the cluster: at the first installation, and again
# whenever this pod is replaced or its server restarts, because it keeps no data. Then members run, and founding another,
# empty cluster beside them would cost the data: whoever joins it copies its emptiness. So this waits, for ever.
set -eu

answers() { timeout 2 bash -c "exec 3<>/dev/tcp/$1/4567" 2>/dev/null; }

for member in $GALERA_MEMBERS; do
    answers "$member" || continue
    # For ever: once a member was seen, nothing here tells a cluster that is down from one that never was.
    while :; do
        echo "$member answered: the cluster runs, and this node founds no other. Remove the bootstrap node:" \
            "kubectl delete deployment/$GALERA_INSTANCE-bootstrap service/$GALERA_INSTANCE-bootstrap-svc" \
            "configmap/$GALERA_INSTANCE-bootstrap" >&2
        sleep 60
    done
done

#!/bin/bash
# Runs when the bootstrap node prepares its database, before it founds the cluster: at the first installation, and again
# whenever this pod is replaced or its server restarts, because it keeps no data. Then members run, and founding another,
# empty cluster beside them would cost the data: whoever joins it copies its emptiness. So this waits, for ever.
set -eu

answers() { timeout 2 bash -c "exec 3<>/dev/tcp/$1/4567" 2>/dev/null; }

for member in $GALERA_MEMBERS; do
    while answers "$member"; do
        echo "$member runs already: the cluster needs no bootstrap node, and this one founds no other cluster. Remove it:" \
            "kubectl delete deployment/$GALERA_INSTANCE-bootstrap service/$GALERA_INSTANCE-bootstrap-svc" \
            "configmap/$GALERA_INSTANCE-bootstrap" >&2
        waits=yes
        sleep 60
    done
    # Once a member was seen, nothing here tells a cluster that is down from one that never was.
    while [ -n "${waits:-}" ]; do sleep 3600; done
done

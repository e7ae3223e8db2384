#!/bin/bash
# Prepares the data only if the command is run.sh, with its full path (entrypoint.sh:19-26). The chart mounts an empty folder over
# the option files (C:360), so their defaults are copied there first.
set -o errexit -o nounset -o pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /opt/bitnami/scripts/common.sh

cp -nr "$base"/conf.default/. "$conf" 2>/dev/null || :
if [[ $1 == /opt/bitnami/scripts/mariadb-galera/run.sh ]]; then
    say "** Starting MariaDB setup **"
    /opt/bitnami/scripts/mariadb-galera/setup.sh
    say "** MariaDB setup finished! **"
fi
exec "$@"

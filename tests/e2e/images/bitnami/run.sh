#!/bin/bash
# Starts the server (run.sh:22-48).
set -o errexit -o nounset -o pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. /opt/bitnami/scripts/common.sh

flags=(--defaults-file="$conf/my.cnf" --basedir="$base" --datadir="$data" --socket="$socket" --pid-file="$base/tmp/mysqld.pid")
read -r -a extra <<<"$(extra_flags | tr '\n' ' ')"
flags+=("${extra[@]}" "$@")
say "** Starting MariaDB **"
mkdir -p "${done_file%/*}"
: >>"$done_file"
exec "$base/sbin/mysqld" "${flags[@]}"

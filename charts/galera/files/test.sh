#!/bin/sh
# Writes a row on one member and reads it on another, in a database of its own, which is dropped in any case.
set -eu
database="helm_test_$(tr -d '\n-' </proc/sys/kernel/random/uuid)"

ask() { # MEMBER SQL
    mariadb --no-defaults --host="$1" --user=root --connect-timeout=10 --batch --skip-column-names --execute="$2"
}
trap 'ask "$WRITER" "DROP DATABASE IF EXISTS $database"' EXIT

ask "$WRITER" "CREATE DATABASE $database"
ask "$WRITER" "CREATE TABLE $database.t (id INT PRIMARY KEY); INSERT INTO $database.t VALUES (42)"
# The reader first applies the writes of the other members.
row=$(ask "$READER" "SET SESSION wsrep_sync_wait = 1; SELECT id FROM $database.t")
if [ "$row" != 42 ]; then
    echo "$READER does not have the row that was written on $WRITER; it has: $row" >&2
    exit 1
fi
ask "$READER" "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_local_state_comment')"
echo "a row written on $WRITER was read on $READER"

# shellcheck shell=bash
# A row written on one member is read on another. In a database of its own, which is dropped whatever happens.
database="helm_test_$(tr -d - </proc/sys/kernel/random/uuid)"

ask() {
    local member=$1
    shift
    mariadb --no-defaults --host="$member" --user=root --connect-timeout=10 --batch --skip-column-names --execute="$*"
}
trap 'ask "$WRITER" "DROP DATABASE IF EXISTS $database"' EXIT

ask "$WRITER" "CREATE DATABASE $database; CREATE TABLE $database.t (id INT PRIMARY KEY); INSERT INTO $database.t VALUES (42)"
# The reader first applies what the others have sent.
read=$(ask "$READER" "SET SESSION wsrep_sync_wait = 1; SELECT id FROM $database.t")
if [ "$read" != 42 ]; then
    echo "$READER does not have the row that was written on $WRITER, but: $read" >&2
    exit 1
fi
ask "$READER" "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state_comment')"
echo "a row written on $WRITER was read on $READER"

# Makes one backup, a dump of the database and an archive of the site's files, in a folder that is named after the time, and deletes
# the oldest backups beyond the number to keep. A backup that fails halfway is discarded, and no other is deleted.
set -eu
umask 077
cd "$BACKUPS"
rm -rf -- .unfinished
mkdir .unfinished

MYSQL_PWD=$DB_PASSWORD mariadb-dump --protocol=tcp --host="$DB_HOST" --user="$DB_USER" --single-transaction "$DB_NAME" >.unfinished/database.sql
gzip .unfinished/database.sql
# Exit status 1: a file changed while it was read, which is no failure.
tar -C "$SITE" -czf .unfinished/files.tar.gz . || [ $? -eq 1 ]

name=$(date -u +%Y-%m-%dT%H-%M-%SZ)
mv .unfinished "$name"
echo "backup $name is made"
set -- 2*Z
while [ $# -gt "$KEEP" ]; do
  rm -rf -- "$1"
  echo "backup $1 is deleted: $KEEP are kept"
  shift
done

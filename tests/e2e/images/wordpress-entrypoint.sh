#!/bin/sh
# Entrypoint of the lab's WordPress image. It behaves towards pods as the official image does: WordPress is copied to /var/www/html,
# which a volume hides, if none is there; WORDPRESS_DB_* say where the database is. Any user may run it.
set -eu

place=/var/www/html
if [ ! -e "$place/index.php" ]; then
    echo "copying WordPress to $place" >&2
    tar --create --directory=/usr/src/wordpress --file=- . | tar --extract --no-same-owner --no-same-permissions --no-overwrite-dir --directory="$place" --file=-
    echo "WordPress has been copied" >&2
fi
export APACHE_RUN_USER=www-data APACHE_RUN_GROUP=www-data APACHE_RUN_DIR=/tmp APACHE_LOCK_DIR=/tmp APACHE_LOG_DIR=/tmp
export APACHE_PID_FILE=/tmp/apache2.pid
exec "$@"

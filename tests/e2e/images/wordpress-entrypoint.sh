#!/bin/sh
# Entrypoint of the lab's WordPress image. It behaves as the official image's: WordPress is copied to /var/www/html, usually a
# volume, unless that has it already, and WORDPRESS_DB_* name the database. Any user may run it.
set -eu

root=/var/www/html
if [ ! -e "$root/index.php" ]; then
    echo "copying WordPress to $root" >&2
    tar --create --directory=/usr/src/wordpress --file=- . | tar --extract --no-same-owner --no-same-permissions --no-overwrite-dir --directory="$root" --file=-
    echo "WordPress has been copied" >&2
fi
export APACHE_RUN_USER=www-data APACHE_RUN_GROUP=www-data APACHE_RUN_DIR=/tmp APACHE_LOCK_DIR=/tmp APACHE_LOG_DIR=/tmp
export APACHE_PID_FILE=/tmp/apache2.pid
exec "$@"

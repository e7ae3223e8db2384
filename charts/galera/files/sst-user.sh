#!/bin/sh
# Creates the user with which a member takes the backup that it sends to a joiner. Name and password are what the servers
# themselves read in wsrep_sst_auth. They pass through pipes and the environment, never through a command line.
set -eu

auth=$(my_print_defaults --mysqld | sed -n 's/^--wsrep[-_]sst[-_]auth=//p' | tail -n 1)
if [ -z "${auth%%:*}" ] || [ "$auth" = "${auth#*:}" ]; then
    echo "wsrep_sst_auth in key sst.cnf of the Secret is not \"user:password\"" >&2
    exit 1
fi

literal() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/[\\\\']/\\\\&/g")"
}
user="$(literal "${auth%%:*}")@'localhost'"

MYSQL_PWD=$MARIADB_ROOT_PASSWORD mariadb --user=root --protocol=socket --batch <<SQL
SET SESSION sql_mode = '';
CREATE USER IF NOT EXISTS $user IDENTIFIED BY $(literal "${auth#*:}");
GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT ON *.* TO $user;
SQL

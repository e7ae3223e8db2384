# Waits until WordPress can log in to its database. On a Galera cluster, whose root password it then has, it first waits for a member that
# is Synced, and creates the database and its user if they do not exist. Passwords are passed in the environment and through a pipe,
# because every process on a node can read arguments.
set -eu

ask() {
  MYSQL_PWD=$2 mariadb --protocol=tcp --host="$DB_HOST" --user="$1" --connect-timeout=5 --skip-column-names --batch
}

works() {
  echo 'SELECT 1' | ask "$DB_USER" "$DB_PASSWORD" >/dev/null 2>&1
}

said=''
wait_for() {
  [ "$said" = "$1" ] || echo "waiting for $1"
  said=$1
  sleep 2
}

# Text in quotes, with a backslash before characters that would end it.
quoted() {
  printf "'%s'" "$(printf '%s' "$1" | sed "s/[\\\\']/\\\\&/g")"
}

make() {
  until [ "$(echo "SHOW STATUS LIKE 'wsrep_local_state_comment'" | ask root "$ROOT_PASSWORD" 2>/dev/null | cut -f 2)" = Synced ]; do
    wait_for "a member of the cluster behind $DB_HOST that is Synced"
  done
  user="$(quoted "$DB_USER")@'%'"
  ask root "$ROOT_PASSWORD" <<END
CREATE DATABASE IF NOT EXISTS \`$DB_NAME\` CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS $user;
ALTER USER $user IDENTIFIED BY $(quoted "$DB_PASSWORD");
GRANT ALL ON \`$(printf '%s' "$DB_NAME" | sed 's/_/\\_/g')\`.* TO $user;
END
  echo "database $DB_NAME and user $DB_USER are created"
}

if [ -n "${ROOT_PASSWORD:-}" ] && ! works; then
  make
fi
until works; do
  wait_for "database $DB_NAME at $DB_HOST: user $DB_USER cannot log in yet"
done
echo "database $DB_NAME at $DB_HOST answers"

# Runs a statement in the server's container as a user who may, and tries two logins. Everything comes through standard
# input, a line each; part of a statement would do something else, so nothing runs before all of it is here.
# shellcheck disable=SC2154,SC2229 # variables are read by name
set -u
for name in admin first second statement account old new; do
    IFS= read -r "$name" || { echo "the input did not arrive as a whole" >&2; exit 4; }
done
client=$(command -v mariadb || command -v mysql) || { echo "its container has no MariaDB client" >&2; exit 3; }
# An option file in a home could hold another password.
export HOME=/nonexistent
as() {
    printf '%s\n' "$3" | MYSQL_PWD=$2 "$client" --user="$1" --batch --skip-column-names --delimiter=// --connect-timeout=5 2>&1
}
if ! said=$(as "$admin" "$first" "$statement"); then
    case $said in
    *"ERROR 1045"*) said=$(as "$admin" "$second" "$statement") || { echo "$said" >&2; exit 1; } ;;
    *) echo "$said" >&2; exit 1 ;;
    esac
fi
# shellcheck disable=SC2086 # rows have no spaces
printf 'row %s\n' $said
for password in "$old" "$new"; do
    if as "$account" "$password" 'SELECT 1' >/dev/null; then echo login yes; else echo login no; fi
done
echo end

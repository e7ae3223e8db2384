# Runs a statement in the server's container as a user that may change accounts, and tries two logins of the account. All
# values come through standard input, one on each line. Nothing runs before all of them have arrived, because a part of a
# statement would do something else. Passwords are quoted as in an option file.
# shellcheck disable=SC2154,SC2229 # variables are read by name
set -u
for name in admin first second statement account old new; do
    IFS= read -r "$name" || { echo "the input did not arrive as a whole" >&2; exit 4; }
done
client=$(command -v mariadb || command -v mysql) || { echo "its container has no MariaDB client" >&2; exit 3; }
# The client gets the password from an option file, which takes precedence over the environment; the file is a pipe. It is
# read after the option files of the image, which may name a socket or certificates. An option file in the home folder would
# be read even later, so HOME names a folder that does not exist.
export HOME=/nonexistent
as() {
    printf '[client]\npassword = %s\n' "$2" | {
        exec 3<&0
        printf '%s\n' "$3" | "$client" --defaults-extra-file=/dev/fd/3 --user="$1" \
            --batch --skip-column-names --delimiter=// --connect-timeout=5 2>&1
    }
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

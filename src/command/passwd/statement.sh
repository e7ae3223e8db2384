# Runs a statement in the server's container as a user who may, and tries two logins. Everything comes through standard
# input, a line each; part of a statement would do something else, so nothing runs before all of it is here. Passwords come
# as values of an option file.
# shellcheck disable=SC2154,SC2229 # variables are read by name
set -u
for name in admin first second statement account old new; do
    IFS= read -r "$name" || { echo "the input did not arrive as a whole" >&2; exit 4; }
done
client=$(command -v mariadb || command -v mysql) || { echo "its container has no MariaDB client" >&2; exit 3; }
# A password in an option file beats one in the environment, and the last file counts. So the password is an option file,
# from a pipe, after those of the image, which may name a socket or certificates; that of a home would come later still.
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

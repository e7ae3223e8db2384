# Puts start-member.sh in front of the server in Bitnami's image: bash reads this file before each of the image's scripts (BASH_ENV).
#
# setup.sh may start a server of its own, which founds a cluster; the server that stays is started by an `exec` in run.sh. Only
# that one is changed: it has the arguments that the image decided on. With `--defaults-file` among them a server does not read
# the pod's own option file, so what stands there follows as arguments.

case $0 in
*/run.sh)
    exec() {
        local options=() before=() word key equals value known=''
        { read -r known <"${BASH_ENV%/*}/identity"; } 2>/dev/null || :
        while read -r key equals value; do
            # An only member, and one that may found a cluster, does what the image decided.
            [[ $key != wsrep_cluster_address ]] || [[ $known != founds && $value == *,* ]] || continue
            [[ $equals != = ]] || options+=("--$key=$value")
        done <"${BASH_ENV%/*}/my.cnf"
        for word; do
            case $word in
            */mysqld | */mariadbd)
                shift "${#before[@]}"
                before+=(sh "${BASH_ENV%/*}/start-member.sh")
                unset BASH_ENV
                builtin exec "${before[@]}" "$@" "${options[@]}"
                ;;
            esac
            before+=("$word")
        done
        builtin exec "$@"
    }
    ;;
*/entrypoint.sh)
    # The image founds a cluster if a variable says so; or if no other member resolves and there is no file of an earlier start,
    # which is not on the claim in newer releases. Where the cluster exists, the variable is refused and the file is written.
    gatera_forbid_founding() {
        local known='' name file value folder
        { read -r known <"${BASH_ENV%/*}/identity"; } 2>/dev/null || :
        case $known in '' | founds | free | unknown) return ;; esac
        for name in MARIADB_GALERA_CLUSTER_BOOTSTRAP MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP; do
            file=${name}_FILE value=${!name:-}
            [[ ! -r ${!file:-} ]] || value=$(<"${!file}")
            unset "$name" "$file"
            case $known,${value,,} in
            recovery*) ;; # this member may found: start-member.sh does it
            *,yes | *,true | *,1)
                export GATERA_FORCED=$name=$value GATERA_ONLY_TELLS=yes
                builtin exec sh "${BASH_ENV%/*}/start-member.sh" /opt/bitnami/mariadb/sbin/mysqld --datadir=/bitnami/mariadb/data
                ;;
            esac
        done
        for folder in /bitnami/mariadb/.bootstrap /opt/bitnami/mariadb/.bootstrap; do
            { mkdir -p "${GATERA_ROOT:-}$folder" && : >>"${GATERA_ROOT:-}$folder/done"; } 2>/dev/null || :
        done
    }
    gatera_forbid_founding
    unset -f gatera_forbid_founding
    ;;
esac

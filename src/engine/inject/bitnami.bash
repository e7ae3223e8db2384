# Puts start-member.sh in front of the server in Bitnami's image: bash reads this file before each of the image's scripts
# (BASH_ENV).
#
# setup.sh may start a temporary server, which founds a cluster; run.sh starts the server that stays, by `exec`. Only this `exec`
# is changed: it has the arguments that the image decided on. If `--defaults-file` is among them, the server does not read the
# pod's own option file, so the options in that file are added as arguments.

gatera_switches=(MARIADB_GALERA_CLUSTER_BOOTSTRAP MARIADB_GALERA_FORCE_SAFETOBOOTSTRAP)

# Whether this variable is on, by itself or by the file that its _FILE variant names: it tells the image to found a cluster.
gatera_is_on() {
    local file=${1}_FILE value=${!1:-}
    [[ ! -r ${!file:-} ]] || value=$(<"${!file}")
    case ${value,,} in yes | true | 1) return 0 ;; *) return 1 ;; esac
}

# Sets known: the cluster, as the guard knows it; and options: the lines of the option file. The address is left out for a member
# that may found a cluster, for the only member of a cluster that is not checked (`free`), and if the user passes another one.
gatera_look() {
    local key equals value switch
    known='' options=()
    { read -r known <"${BASH_ENV%/*}/identity"; } 2>/dev/null || :
    while read -r key equals value; do
        [[ $equals == '=' ]] || continue
        if [[ $key == wsrep_cluster_address ]]; then
            case $known,$value in free,*,*) ;; founds,* | free,*) continue ;; esac
            [[ ${MARIADB_EXTRA_FLAGS:-} != *wsrep[-_]cluster[-_]address* ]] || continue
            for switch in "${gatera_switches[@]}"; do ! gatera_is_on "$switch" || continue 2; done
        fi
        options+=("--$key=$value")
    done <"${BASH_ENV%/*}/my.cnf"
}

case $0 in
*/run.sh)
    exec() {
        local known options before=() word
        gatera_look
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
    # The image founds a cluster if a variable says so, or if no other member's name resolves and there is no mark of an earlier
    # start. If the cluster exists, the variables are unset and the mark is made. If this member may found, an empty volume gets
    # no mark.
    gatera_prepare() {
        local known options name exists='' mark=${GATERA_ROOT:-}/bitnami/mariadb/.bootstrap/done
        rm -f "${GATERA_ROOT:-}/run/gatera/start" # servers of the image's own come before the step
        gatera_look
        [[ ${options[*]} != *--wsrep_cluster_address=* ]] || exists=yes
        case $known in '' | founds | free | unknown) ;; *)
            exists=yes
            for name in "${gatera_switches[@]}"; do
                ! gatera_is_on "$name" || echo "gatera: $name is ignored: its cluster exists already" >&2
                unset "$name" "${name}_FILE"
            done
            ;;
        esac
        if [[ $exists ]]; then
            { mkdir -p "${mark%/*}" && : >>"$mark"; } 2>/dev/null || :
        elif [[ $known == founds && ! -e ${mark%/*/*}/data/mysql ]]; then
            rm -f "$mark"
        fi
    }
    gatera_prepare
    ;;
esac

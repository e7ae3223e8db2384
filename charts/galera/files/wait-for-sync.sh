#!/bin/sh
# Reports the state of a Galera member to the kubelet, and delays its stop while another member needs it.
#
#   ready [blocking]  readiness probe: the server answers, and is SYNCED, or DONOR unless its state transfer blocks it
#   started [quietly] startup probe: joining is over; if not, it also prints what start-member.sh found
#   leave SECONDS     preStop hook: waits, for this time at most, until no joiner depends on this member; exits 0
#
# No password is needed: the server keeps its state in a file (wsrep_status_file), so a changed Secret breaks
# no probe. Only a server too old to have that file is asked with the client and the container's credentials.
# Three things are less simple than they look; the functions below say why:
#   - the file outlives the server that wrote it         (written_by_this_server)
#   - messages in the file may quote a state             (state_in_file)
#   - a donor calls itself SYNCED while still needed     (joiner_is_connected)
# Plain POSIX shell with coreutils or busybox, grep and sed.
set -u
export LC_ALL=C # a message in another encoding must not upset sed

proc=${GATERA_PROC:-/proc}
status_file=${GATERA_STATUS_FILE:-/run/gatera/wsrep_status.json}
run=${status_file%/*}
identity=${GATERA_IDENTITY:-/etc/gatera/identity}
zeros=00000000-0000-0000-0000-000000000000

# Writes a line to a new file: the server's user may have put a link or a pipe there, and root would write through it.
put() { rm -f "$1" && { (set -C && printf '%s\n' "$2" >"$1") || ! rm -f "$1"; }; } 2>/dev/null

# Sets first: the first line of a file; empty for a link or a pipe.
read_line() {
    first=''
    [ ! -f "$1" ] || [ -L "$1" ] || read -r first <"$1"
    [ -n "$first" ]
} 2>/dev/null

# Sets pid and ticks (start time, in 1/100 s since boot) of the server: PID 1 in most images, else the first
# process of that name. A zombie has ended; only its parent has not noticed.
find_server() {
    for dir in "$proc"/[0-9]*; do # sorted: PID 1 comes first
        read -r comm <"$dir/comm" || continue
        case $comm in mariadbd | mysqld) ;; *) continue ;; esac
        read -r stat <"$dir/stat" || continue
        # The fields after the name, which may itself hold blanks and parentheses: $1 is the state, field 3.
        # shellcheck disable=SC2086
        set -- ${stat##*)}
        case ${1:-Z} in Z | X) continue ;; esac
        pid=${dir##*/} ticks=${20:-}
        return 0
    done 2>/dev/null
    return 1
}

# An idle server never rewrites its file: after a kill, the next one starts beside an old SYNCED. So the file
# must not be older than the server. The start is counted from boot, and the time of boot moves when the clock is
# set (think of a paused virtual machine): an idle member would then be unready for good. So a mark
# beside the file names each server that was found to write it.
written_by_this_server() {
    mark=$status_file.of-$pid-$ticks
    [ -d "$mark" ] && return 0
    boot=$(sed -n 's/^btime \([0-9][0-9]*\)$/\1/p' "$proc/stat")
    written=$(stat -c %Y "$status_file")
    [ -n "$boot" ] && [ -n "$ticks" ] && [ -n "$written" ] || return 1
    [ "$written" -ge $((boot + ticks / 100)) ] || return 1
    mkdir "$mark" 2>/dev/null || : # a directory: made in one step, and never through another user's symlink
}

# The object "status" comes last in the file. A message before it may quote another, but with a backslash before
# every quotation mark; and a full disk may cut the file off anywhere.
state_in_file() {
    tr -d '\000-\037' <"$status_file" |
        sed -n 's/^ *{.*"status" *: *{ *"state" *: *"\([A-Z]*\)".*} *} *$/\1/p'
}

# Asks over the local socket. The password travels in MYSQL_PWD, where neither `ps` nor `sh -x` shows it. A
# trailing newline of a password file is not part of the password; every other byte is.
state_by_client() (
    { set +x; } 2>/dev/null
    client=$(command -v mariadb || command -v mysql) || exit 0
    password=${MARIADB_ROOT_PASSWORD:-${MYSQL_ROOT_PASSWORD:-}}
    file=${MARIADB_ROOT_PASSWORD_FILE:-${MYSQL_ROOT_PASSWORD_FILE:-}}
    if [ -z "$password" ] && [ -n "$file" ]; then password=$(cat <"$file"); fi
    if [ -n "$password" ]; then export MYSQL_PWD; MYSQL_PWD=$password; fi
    bound='' # connect-timeout does not bound the answer; an old busybox has a `timeout` of another syntax
    if timeout 3 cat </dev/null 2>/dev/null; then bound='timeout 3'; fi
    query="SET SESSION wsrep_sync_wait=0;" # the answer must not wait for replication
    query="$query SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_local_state_comment','wsrep_cluster_status')"
    answer=$($bound "$client" --user=root --protocol=socket --batch --skip-column-names --connect-timeout=2 \
        --execute="$query" </dev/null)
    tab=$(printf '\t')
    case $answer in
        *"wsrep_cluster_status${tab}Primary"*) ;;
        *"wsrep_cluster_status${tab}"*) echo CONNECTED; exit 0 ;;
        *) exit 0 ;;
    esac
    case $answer in
        *"wsrep_local_state_comment${tab}Synced"*) echo SYNCED ;;
        *"wsrep_local_state_comment${tab}Donor"*) echo DONOR ;;
        *"wsrep_local_state_comment${tab}Joined"*) echo JOINED ;;
        *"wsrep_local_state_comment${tab}Join"*) echo JOINING ;;
    esac
)

# The state that the server reports, or one of four words of our own: GONE, APART, STALE, UNKNOWN.
state() {
    if ! find_server; then
        word=GONE
    elif [ "${BASH_ENV:-}" = /etc/gatera/bitnami.bash ] && [ ! -e "$run/start" ]; then
        word=APART # the image's setup starts servers of its own; start-member.sh comes before the one that stays
    elif [ ! -f "$status_file" ]; then
        word=$(state_by_client)
    elif written_by_this_server; then
        word=$(state_in_file)
    else
        word=STALE # a server that writes the file is not asked: it will write soon
    fi
    echo "${word:-UNKNOWN}"
}

in_words() {
    case $1 in
        GONE) echo "there is no server process" ;;
        APART) echo "the image or gatera's step script is preparing the data; if this lasts, BASH_ENV has no effect" ;;
        STALE) echo "the status file was left by an earlier server" ;;
        UNKNOWN) echo "the server does not report its state" ;;
        *) echo "the server is $1" ;;
    esac
}

# A donor calls itself SYNCED once it has sent. The joiner is then still busy, and aborts if its donor
# leaves; until it is through, the connection from here to its IST port is established (state 01).
joiner_is_connected() {
    port=$(printf '%04X' "${GATERA_IST_PORT:-4568}")
    grep -qs "^ *[0-9]*: [0-9A-F]*:[0-9A-F]* [0-9A-F]*:$port 01 " "$proc/net/tcp" "$proc/net/tcp6"
}

# Sets id: the cluster of this server, as grastate.dat names it; and recorded: the cluster as the guard knows it ($identity, an
# annotation of the pod; `unknown`: not yet).
read_cluster() {
    id='' recorded=''
    find_home
    [ ! -f "$home/grastate.dat" ] || while read -r key value _; do
        case $key in uuid:) id=$value ;; esac
    done <"$home/grastate.dat"
    case $id in *[!0-9a-f-]*) id='' ;; "$zeros") ;; ????????-????-????-????-????????????) ;; *) id='' ;; esac
    read -r recorded <"$identity"
    [ "$id" != "$zeros" ] || has_no_id || id=''
} 2>/dev/null

# Sets home, the folder of grastate.dat: as the step script recorded it, or, for a server that was started otherwise, where
# its data is.
find_home() {
    home=''
    read_line "$run/home" && home=$first && return 0
    find_server || return 1
    options=$(tr '\000' '\n' <"$proc/$pid/cmdline" | sed -n '/^--d/p')
    # shellcheck disable=SC2046
    files=$(my_print_defaults $(echo "$options" | sed -n '/^--defaults-/p') --mysqld)
    home=$({ echo "$files"; echo "$options"; } | sed -n 's/^--datadir=//p' | sed -n '$p')
    home=${home:-/var/lib/mysql}
    put "$run/home" "$home"
} 2>/dev/null

# Zeros stand in grastate.dat while a DDL runs, and in a cluster that was formed without an id. Only in such a cluster are they
# also in the head of galera.cache, which names the history of the write sets.
has_no_id() {
    [ -f "$home/galera.cache" ] || return 1
    history=$(head -c 1024 "$home/galera.cache" | tr -d '\000' | sed -n 's/^GID: *\([0-9a-f-]*\).*/\1/p')
    [ "$history" = "$zeros" ]
}

# Reports the cluster to a guard that does not know it, by a probe that fails once: the kubelet makes an Event of its output. If a
# pod made many Events, kubelets drop all but one in five minutes; so the report is repeated until the guard has received it. It
# is also kept in the pod, for start-member.sh.
tell_cluster() {
    [ -n "$id" ] || return 0
    case $recorded,$id in
        ,* | free,* | "$id,$id" | none,"$zeros") return 0 ;;
        *,"$zeros") ;; # it may have lost its id
        unknown,*) put "$run/cluster" "$id" ;;
    esac
    read_line "$run/told"
    told=${first%% *} at=${first#* }
    # The server may write to this file, too. The time is in seconds since the node's boot.
    case $at in '' | 0?* | *[!0-9]*) told='' at=0 ;; esac
    since=$(($(seconds_since_boot) - at))
    # Below 0: the node has restarted meanwhile.
    [ "$told" != "$id" ] || [ "$since" -ge 330 ] || [ "$since" -lt 0 ] || return 0
    put "$run/told" "$id $(seconds_since_boot)" || return 0
    [ "$id" = "$zeros" ] && id='has no id' || id="is $id"
    echo "$(in_words "$now"); its cluster $id"
    exit 1
} 2>/dev/null

# A member that is Synced in another cluster is not Ready. Zeros stand for an unknown cluster, never for another one.
in_its_cluster() {
    case $id,$recorded in ",$recorded" | "$zeros,$recorded" | "$id," | "$id,$id" | *,unknown | *,founds | *,free | *,none) return 0 ;; "$id,recovery $id:"*) return 0 ;; esac
    echo "$(in_words "$now"), in another cluster: $id, but $recorded is recorded; if that is out of date, put the override of" \
        "G04 on the StatefulSet and delete this pod"
    exit 1
}

# Joining is over: the report of start-member.sh is outdated, and an orderly end is waited for from now on.
joined() {
    [ -e "$run/start" ] && [ ! -s "$run/joined" ] || return 0
    put "$run/joined" "$now" && true >"${GATERA_TERMINATION_LOG:-/dev/termination-log}"
} 2>/dev/null

# A server that is frozen leaves SYNCED in its file, and the kernel takes connections for it. If some wait to be
# accepted (the receive queue of a port in state 0A), only the server's greeting shows that it answers. Otherwise it is
# not asked: the server logs a warning about every connection that does not log in.
answers() {
    port=${GATERA_PORT:-3306}
    queue=$(printf '[0-9A-F]*:%04X [0-9A-F]*:0000 0A [0-9A-F]*:0*[1-9A-F]' "$port")
    grep -qs "^ *[0-9]*: $queue" "$proc/net/tcp" "$proc/net/tcp6" || return 0
    command -v bash >/dev/null && timeout 3 cat </dev/null 2>/dev/null || return 0
    # shellcheck disable=SC2016 # for bash
    timeout 3 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && read -r -n 1 -u 3' "$port" 2>/dev/null </dev/null
    case $? in 124 | 143) echo "the server does not answer on its port" && return 1 ;; esac
}

# The server says that it has to restart, but may neither restart nor end. Galera writes this after a copy that broke off.
has_to_restart() {
    case $now in GONE | APART | STALE | UNKNOWN) return 1 ;; esac
    [ -f "$status_file" ] && grep -qs 'node restart required' "$status_file"
}

# A socket of this port is in this state: 01 is connected, 0A listens.
on_port() { grep -qs "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:[0-9A-F]* $2 " "$proc/net/tcp" "$proc/net/tcp6"; }

# A joiner copies (its donor is connected to one of its ports, or a script of the transfer runs and does not wait for the donor),
# or works on what it has received. After two minutes of neither, its transfer has failed and the server hangs, or its donor is
# busy.
stalls() {
    [ "$now" = JOINING ] || return 1
    ! has_to_restart || return 0
    copies=''
    for dir in "$proc"/[0-9]*; do # its own options have a `-` before that word
        case $(tr '\000' ' ' <"$dir/cmdline") in wsrep_sst_* | *[/\ ]wsrep_sst_*) copies=yes ;; esac
    done
    ! on_port "${GATERA_SST_PORT:-4444}" 0A || copies=''
    ! on_port "${GATERA_SST_PORT:-4444}" 01 || copies=yes
    ! on_port "${GATERA_IST_PORT:-4568}" 01 || copies=yes
    worked=0 since='' before=0 whose='' ticks=''
    if find_server && read -r stat <"$proc/$pid/stat"; then
        # shellcheck disable=SC2086
        set -- ${stat##*)}
        worked=$((${12:-0} + ${13:-0})) # in 1/100 s
    fi
    if [ -z "$copies" ] && read_line "$run/idle"; then
        since=${first%% *} whose=${first##* } first=${first#* } before=${first%% *}
    fi
    [ "$whose" = "$ticks" ] || since='' # it was another server's
    for number in "$since" "$before" "$worked"; do # the server may write there
        case $number in 0?* | *[!0-9]*) since='' before=0 worked=0 ;; esac
    done
    idle=$(($(seconds_since_boot) - ${since:-0}))
    if [ -z "$since" ] || [ "$idle" -lt 0 ] || [ $((worked - ${before:-0})) -gt $((5 + idle * 3)) ]; then
        put "$run/idle" "$(seconds_since_boot) $worked $ticks"
        return 1
    fi
    [ "$idle" -ge 120 ]
} 2>/dev/null

# Less than a megabyte is left where the data is.
disk_is_full() {
    find_home
    left=$(df -P -k "$home" | sed -n '$s/^.* \([0-9][0-9]*\)  *[0-9][0-9]*%.*$/\1/p')
    [ -n "$left" ] && [ "$left" -lt 1024 ]
} 2>/dev/null

# Exits 0 if the state is one of those given after the question, and says what it is: a failed probe's output becomes an Event.
require() {
    now=$(state) start=''
    question=$1
    shift
    for good in "$@"; do
        [ "$now" = "$good" ] || continue
        joined
        read_cluster
        [ "$question" != ready ] || in_its_cluster
        [ "$question" = quiet ] || tell_cluster
        in_words "$now"
        exit 0
    done
    [ -s "$run/joined" ] || ! read_line "$run/start" || start=$first
    case $start in 'start of '*) ;; *) start='' ;; esac # the server's user may write there
    said=$(in_words "$now")
    ! stalls || said="$said, and nothing comes in"
    ! disk_is_full || said="$said; its disk is full"
    ! has_to_restart || said="$said; it says: node restart required"
    leave_words
    echo "$said${start:+; $start}"
    exit 1
}

# If a pod made many Events, kubelets drop the next ones. So the state of a member that has not joined is also in the termination
# message. The step script calls this, too: if joining has ended meanwhile, the message is emptied again.
leave_words() {
    case ${start:+$now} in '' | GONE | APART | STALE | UNKNOWN) ;; *)
        echo "Startup probe failed: $said; $start" >"${GATERA_TERMINATION_LOG:-/dev/termination-log}" ;;
    esac
    [ ! -s "$run/joined" ] || true >"${GATERA_TERMINATION_LOG:-/dev/termination-log}"
} 2>/dev/null

seconds_since_boot() { # not `date`: a clock that is set must not cut the wait short or draw it out
    read -r uptime _ </proc/uptime
    echo "${uptime%%.*}"
}

# Between the end of DONOR and the connection there is a short gap, so the wait ends only after two looks in a row without a
# reason.
leave() {
    began=$(seconds_since_boot) told='' calm=0
    while :; do
        now=$(state) reason=''
        case $now in
            GONE | DISCONNECTED | JOINING) break ;; # waiting does not help: such a member feeds no joiner
            DONOR) reason="this member is sending a state transfer" ;;
            *) if joiner_is_connected; then reason="a joiner is still connected"; fi ;;
        esac
        if [ -n "$reason" ]; then calm=0; else calm=$((calm + 1)); fi
        [ "$calm" -lt 2 ] || break
        if [ -n "$reason" ] && [ "$reason" != "$told" ]; then
            told=$reason
            echo "waiting up to $1 s: $reason"
        fi
        if [ $(($(seconds_since_boot) - began)) -ge "$1" ]; then
            echo "leaving: $1 s have passed${reason:+, although $reason}"
            exit 0
        fi
        sleep 1
    done
    echo "leaving: $(in_words "$now"), and no joiner depends on it"
    exit 0
}

case "$# $*" in
    '1 ready') answers && require ready SYNCED DONOR || exit 1 ;;
    '2 ready blocking') answers && require ready SYNCED || exit 1 ;;
    '1 started') require started JOINED SYNCED DONOR ;;
    '2 started quietly') require quiet JOINED SYNCED DONOR ;;
    '2 leave ' | '2 leave '*[!0-9]*) ;;
    '2 leave '*) leave "$2" ;;
esac
echo "usage: wait-for-sync.sh ready [blocking] | started [quietly] | leave SECONDS" >&2
exit 64

#!/bin/sh
# Starts a Galera server from the position of its data, and ends a server that hangs or ignores SIGTERM.
#
#   start-member.sh COMMAND...   the command of the image: docker-entrypoint.sh mariadbd ...
#
# With GATERA_ONLY_TELLS=yes it only reports where the data ends.
#
# A position is the number of the last transaction that a member has, together with the id of the history it belongs
# to: UUID:SEQNO. A server that was stopped in order finds its position in grastate.dat. After a crash the position is
# only in InnoDB's own files. On a host, mysqld_safe or systemd reads it from there; in a container nothing does. Members
# without a position form their cluster again without comparing their data: rows that only some of them received differ
# from then on. So this script makes sure that:
#   - the position is recovered and passed to this very start as an argument, never through a file that could be stale;
#   - a server whose position Galera would ignore (set_view_aside), or which had not joined, does not form a cluster out of
#     its last view;
#   - a cluster that exists is not founded a second time (gate): members that join the new one throw their data away;
#   - a cluster that is down is started from its newest data, only if the guard permits it, and only from that position (lead).
# This shell stays the parent of the server, which ignores SIGTERM while it waits for others or for a copy. A shell that may
# not signal the server is replaced by it (exec).
# Plain POSIX shell. From the image it needs the server itself, mv, what wait-for-sync.sh needs, and my_print_defaults where
# option files say where the data is; as root also find and chown. The server's user may write in $run and where the data is,
# so nothing is written through a link or a pipe there.
set -u

proc=${GATERA_PROC:-/proc}
status_file=${GATERA_STATUS_FILE:-/run/gatera/wsrep_status.json}
run=${status_file%/*}
message=${GATERA_TERMINATION_LOG:-/dev/termination-log}
here=${0%/*}
identity=${GATERA_IDENTITY:-/etc/gatera/identity}
zeros=00000000-0000-0000-0000-000000000000
patience=${GATERA_PATIENCE:-60}
silence=${GATERA_SILENCE:-180} longest=${GATERA_LONGEST:-1680} # after two minutes of wait-for-sync.sh
driven=${GATERA_FOUNDING_FILE:-} # an operator founds by an option file: until when it may do so in this pod (resume TIME), or not (join)
child='' asked='' recovering='' killer=''

say() { echo "gatera: $*" >&2; }

# Writes a line to a new file: root would write through a link, and a pipe would hold it up.
put() { rm -f "$1" && { (set -C && printf '%s\n' "$2" >"$1") || ! rm -f "$1"; }; } 2>/dev/null

is_file() { [ -f "$1" ] && [ ! -L "$1" ]; }

# Reports what is known about the data: in the log, for the probe, and as the termination message, which is emptied when
# joining is over.
tell() {
    now=$(date -u +%Y-%m-%dT%H:%M:%SZ 2>/dev/null) || now='an unknown time'
    line="start of $now: $1, safe_to_bootstrap ${safe:-unknown}"
    say "$line"
    put "$run/view" "$view"
    rm -f "$run/joined" # first: the disk may be full
    put "$run/start" "$line"
    { echo "$line" >"$message"; } 2>/dev/null
    [ -z "${GATERA_ONLY_TELLS:-}" ] || exit 0
}

# Does not start the server, and says why.
refuse() {
    say "$*"
    echo "gatera did not start the server: $*" 2>/dev/null >"$message"
    exit 1
}

# Sets server, and before: how many words stand before the server's own arguments. Injection (galera/start.rs) reads
# commands in the same way.
split_command() {
    before=0 server='' last=''
    for word; do
        case $word in
            -*)
                [ "$last" != image ] || server=$(command -v mariadbd || command -v mysqld) # the image adds its name
                [ "$last" = wrapper ] || break
                ;;
            *=*) [ "$last" = env ] || break ;;
            tini | */tini | dumb-init | */dumb-init) last=wrapper ;;
            env | */env) last='env' ;;
            docker-entrypoint.sh | */docker-entrypoint.sh) last=image ;;
            mariadbd | */mariadbd | mysqld | */mysqld)
                before=$((before + 1)) server=$word
                break
                ;;
            *) break ;;
        esac
        before=$((before + 1))
    done
    [ -n "$server" ] && command -v "$server" >/dev/null
}

# Takes one option, from a file or from the command line, in any spelling.
take() {
    key=${1%%=*} key=${key#--} key=${key#loose[-_]} key=${key#enable[-_]}
    while :; do case $key in *_*) key=${key%%_*}-${key#*_} ;; *) break ;; esac; done
    case $1 in *=*) value=${1#*=} ;; *) value=${2:-} ;; esac
    case $key in
        datadir) datadir=$value ;;
        -h) datadir=$value ;;
        -h*) datadir=${1#-h} ;;
        wsrep-data-home-dir) home=$value ;;
        innodb-data-home-dir) tablespaces=$value ;;
        wsrep-start-position) own_position=$value ;;
        # The server accepts every beginning of a name that no other name has.
        wsrep-cluster-a*) address=$value ;;
        wsrep-ne*) case $value in 0 | [Oo][Ff][Ff] | [Ff][Aa][Ll][Ss][Ee]) new='' ;; *) new=yes ;; esac ;;
        skip-wsrep-ne* | disable-wsrep-ne*) new='' ;;
        wsrep-on) wsrep=$value ;;
        skip-wsrep-on | disable-wsrep-on) wsrep=off ;;
    esac
}

# Where the data is, as the server finds it: its option files first, then its arguments.
read_options() {
    datadir=/var/lib/mysql home='' tablespaces='' own_position='' defaults='' address='' new='' wsrep=''
    for word; do
        case $word in
            --defaults-file=* | --defaults-extra-file=* | --defaults-group-suffix=* | --no-defaults) ;;
            *) break ;;
        esac
        defaults="$defaults $word"
    done
    # shellcheck disable=SC2086 # these are words
    files=$(my_print_defaults $defaults --mysqld 2>/dev/null)
    while IFS= read -r word; do take "$word"; done <<EOF
$files
EOF
    files='' # there may be passwords in it
    while [ $# -gt 0 ]; do
        take "$@"
        shift
    done
    home=${home:-$datadir}
    mark=$home/gatera.sst_in_progress # a name that wsrep_sst_mariabackup spares when it empties the folder
    case $tablespaces in /*) ;; *) tablespaces=$datadir/$tablespaces ;; esac
}

# The id of a history, not the zeros that stand for none.
is_id() {
    case $1 in *[!0-9a-f-]* | "$zeros") return 1 ;; ????????-????-????-????-????????????) return 0 ;; *) return 1 ;; esac
}

# Sets right: the position from which the guard lets this member start the cluster again, and until when; and
# recorded: the cluster that this member belongs to, as the guard's annotation of the pod says; `none`: one
# that lost its identity. Before the guard knows it (`unknown`) this pod remembers what it has seen itself, for a
# container that starts again without its data. `founds` (a person has taken the responsibility) and `free` (nothing
# is refused here) stop no server.
read_recorded() {
    recorded='' seen='' right=''
    read -r recorded <"$identity"
    case $recorded in
        'recovery '*) right=${recorded#recovery } recorded='' right_ends=${right##* until=} right=${right% until=*} ;;
    esac
    [ -z "$right" ] || [ ! -e "$run/led" ] || recorded=${right%:*} # it is used up
    is_id "$recorded" && return 0
    [ "$recorded" != none ] || return 0
    [ "$recorded" != unknown ] || holds_data || ! is_file "$run/cluster" || read -r seen <"$run/cluster"
    recorded=''
    ! is_id "$seen" || recorded=$seen
} 2>/dev/null

# Whether an operator's option file may found a cluster in this pod: only for some minutes, because other members may serve later,
# and not after a server of this pod has served.
may_resume() {
    [ "${driven#resume }" != "$driven" ] && [ ! -e "$run/resumed" ] && ! has_served || return 1
    now=$(date -u +%Y%m%d%H%M%S 2>/dev/null) || now=''
    [ -z "$now" ] || [ "$now" -lt "${driven#resume }" ] 2>/dev/null
}

# Refuses a server that would found a cluster where one exists, even if the cause got past the webhooks: an address from a Secret,
# a template that changed while the guard was down, a container that lost its disk.
gate() {
    founding=''
    case $address in
        gcomm://*) # the first host decides
            host=${address#gcomm://} host=${host%%[?/,]*}
            case $host in *[!\ ]*) ;; *) founding='wsrep_cluster_address names no host' ;; esac
            case $host in 0.0.0.0 | 0.0.0.0:* | :: | '[::]'*) founding="wsrep_cluster_address names $host" ;; esac
            ;;
    esac
    case $wsrep in 0 | [Oo][Ff][Ff] | [Ff][Aa][Ll][Ss][Ee]) founding='' new='' ;; esac
    # An operator founds by an option file, which it may leave behind.
    if [ -n "$driven" ] && [ -n "$new" ] && [ -z "$founding" ] && [ "$recorded" != none ]; then
        resumes=yes
        ! may_resume || return 0
        resumes='' founds=--skip-wsrep-new-cluster
        say "an option file asks for a new cluster, but may be left from an earlier recovery: this member joins its peers; if" \
            "none of them serves, delete this pod"
        return 0
    fi
    [ -z "$new" ] || founding=wsrep_new_cluster
    [ -n "$founding" ] && [ -n "$recorded" ] || return 0
    known=$recorded
    [ "$known" != none ] || known='it lost its identity'
    refuse "it would found a new cluster ($founding), but its cluster exists already: $known; members that join a new" \
        "cluster throw their data away; give it the members' addresses, so that it joins; if no member is left, gatera recover" \
        "(or the operator that drives it) starts from the newest data; to found a new cluster, put the override of G04 on the" \
        "StatefulSet and delete this pod"
}

# The cluster is down, and the guard has compared where each member's data ends: this member starts the cluster again, if its
# data ends at the position of the right. Only once: if it stops afterwards, the others may have newer data.
lead() {
    [ -n "$right" ] || return 0
    if [ -e "$run/led" ]; then
        say "this pod has already started the cluster once, so it now joins the others"
        return 0
    fi
    now=$(date -u +%Y%m%d%H%M%S 2>/dev/null) || now=''
    [ -z "$now" ] || [ "$now" -lt "$right_ends" ] 2>/dev/null || refuse "it was to start the cluster from $right until $right_ends, but" \
        "the clock of its node shows $now; other members may have continued: run gatera recover again"
    holds_data || refuse "it was to start the cluster from $right, but there is no database in $datadir"
    [ "$at" = "$right" ] || refuse "it was to start the cluster from $right, but its data ends at ${at:-no position}; run gatera" \
        "recover again"
    set_view_aside "this member starts the cluster again"
    if ! mkdir "$run/led" 2>/dev/null || ! make_safe 2>/dev/null; then
        rmdir "$run/led" 2>/dev/null
        refuse "it was to start the cluster again, but $home/grastate.dat or $run cannot be written"
    fi
    say "the cluster is down, and this member has its newest data: it starts the cluster again, from $at"
    founds=--wsrep-new-cluster
}

# An operator starts its cluster again from this member, by an option file, and its agent wrote grastate.dat: its content is
# replaced by the position of the data. Until the cluster is recorded, there is nothing to compare this position with.
resume() {
    [ -n "$resumes" ] || return 0
    elsewhere="let the operator start from another member (forceClusterBootstrapInPod)"
    [ ! -e "$mark" ] || refuse "it was to start the cluster again, but its data is an incomplete copy of another member's; $elsewhere"
    [ -n "$recorded" ] || return 0
    [ "${at%:*}" = "$recorded" ] || refuse "it was to start cluster $recorded again, but its data ends at" \
        "${at:-no position of it}; $elsewhere"
    set_view_aside "this member starts the cluster again"
    make_safe 2>/dev/null || refuse "it was to start the cluster again, but $home/grastate.dat cannot be written"
    say "its operator starts the cluster again from this member, from $at"
}

# Galera uses a position only if grastate.dat has the id of the same history, and founds only if that file says so. It is written
# completely or not at all.
make_safe() {
    new_state=$home/grastate.dat.new
    put "$new_state" "# GALERA saved state
version: 2.1
uuid:    ${at%:*}
seqno:   ${at#*:}
safe_to_bootstrap: 1" || return 1
    [ "$user" != 0 ] || chown -h mysql: "$new_state" || return 1
    [ ! -d "$home/grastate.dat" ] || return 1 # root would move it in, through a link
    mv -f "$new_state" "$home/grastate.dat"
}

# A member that joins another cluster than its own throws its data away. That may be right: the cluster may have been
# founded again. So it waits for a minute, for a person to stop it; only once, so that probes do not kill it again and again.
name_stranger() {
    is_id "$own" || own=$uuid
    is_id "$own" && is_id "$recorded" && [ "$own" != "$recorded" ] && [ -z "$founding" ] || return 0
    mkdir "$run/named-$own-$recorded" 2>/dev/null || return 0
    say "the data in $datadir is of cluster $own, but the members' cluster is $recorded: joining replaces the data. If" \
        "it is still needed, delete or scale down this pod within $patience s and copy the volume"
    sleep "$patience" &
    await
    child=''
}

# Sets uuid, seqno and safe from grastate.dat, which may hold anything.
read_state() {
    uuid='' seqno='' safe='' key=''
    [ ! -f "$home/grastate.dat" ] || while read -r key value _; do
        case $key in
            uuid:) uuid=$value ;;
            seqno:) seqno=$value ;;
            safe_to_bootstrap:) safe=$value ;;
        esac
    done <"$home/grastate.dat"
    # Programs that write this file may leave out the last line break. Any other line without one may be cut short.
    [ "$key" != safe_to_bootstrap: ] || safe=$value
    case $safe in 0 | 1) ;; *) safe='' ;; esac
    is_id "$uuid" || uuid=''
    case $seqno in '' | *[!0-9]*) seqno='' ;; esac
} 2>/dev/null

# Whether an operator's agent wrote grastate.dat: it lacks Galera's first line.
is_the_agents() { [ -n "$driven" ] && [ -n "$uuid" ] && ! grep -qs '^# GALERA saved state' "$home/grastate.dat"; }

# Galera writes an id when a copy is complete. The agent may write one while the copy is incomplete.
distrust_agent() {
    [ -e "$mark" ] && is_the_agents || return 0
    mv -f "$home/grastate.dat" "$home/grastate.dat.set-aside" || refuse "$home/grastate.dat says that an incomplete copy is complete, and cannot be set aside"
    say "grastate.dat is set aside: the data is an incomplete copy of another member's"
    uuid='' seqno='' safe=''
}

holds_data() {
    for file in "$tablespaces/ibdata1" "$datadir/mysql/global_priv.frm" "$datadir/mysql/user.frm"; do
        [ ! -s "$file" ] || return 0
    done
    return 1
}

# A state transfer began to replace the data and did not finish: its script makes sst_in_progress before it changes the data, and
# wsrep_sst_mariabackup makes .sst before it removes files, in any order. A script that fails removes sst_in_progress if it can,
# so watch_over makes a mark of our own. During a transfer grastate.dat has no id; nor has it for a moment before a transfer of
# only what is missing, when all data is there.
is_half_a_copy() {
    [ -z "$uuid" ] || return 1
    [ ! -e "$mark" ] || return 0
    # shellcheck disable=SC3013 # every shell that an image may bring knows -nt
    [ -e "$datadir/sst_in_progress" ] && { [ -d "$datadir/.sst" ] || [ ! -e "$tablespaces/ibdata1" ] ||
        [ ! "$datadir/sst_in_progress" -nt "$tablespaces/ibdata1" ]; }
}

# The last view lets members find each other and form their cluster again. Only a server whose position Galera compares may use
# it; and a view that is cut short keeps the server from starting.
set_view_aside() {
    [ -e "$home/gvwstate.dat" ] || return 0
    rm -f "$home/gvwstate.dat.set-aside" 2>/dev/null
    mv -f "$home/gvwstate.dat" "$home/gvwstate.dat.set-aside" || refuse "$home/gvwstate.dat must be set aside ($1), but cannot be renamed"
    say "gvwstate.dat is set aside: $1"
}

# Sets view: the id and the members of the last view; parts: the kinds of its lines, which show whether it is complete; and
# missing: how many members of this pod's StatefulSet the address names, minus the members in the view; empty: it names none.
read_view() {
    # shellcheck disable=SC3028 # the container runtime sets it: the pod's name
    view='' parts='' missing='' pod=${HOSTNAME:-} hosts=${address#gcomm://} hosts=${hosts%%\?*},
    while [ -n "$hosts" ]; do
        host=${hosts%%,*} hosts=${hosts#*,}
        case ${host#"${host%%[! ]*}"} in "${pod%-*}"-[0-9]*) missing=$((${missing:-0} + 1)) ;; esac
    done
    [ ! -f "$home/gvwstate.dat" ] || while read -r key value; do
        case $key in
            my_uuid:) parts=$parts.id ;;
            view_id:) parts=$parts.view view=$value ;;
            member:)
                parts=$parts.member view="$view $value"
                [ -z "$missing" ] || missing=$((missing - 1))
                ;;
            '#vwend') parts=$parts.end ;;
        esac
    done <"$home/gvwstate.dat"
} 2>/dev/null

# Sets unjoined if the last server of this pod wrote this view and had not joined. Nothing is known about a server without a
# status file, or about one of an earlier pod, which has set such a view aside itself, if it could. A view that is the same as at
# the start was only restored: Galera then writes the file again, with another my_uuid. That a server joined a moment ago may be
# only in its status file.
look_back() {
    unjoined='' known=''
    read_view
    is_file "$run/view" && [ -f "$status_file" ] || return 0
    ! has_served || return 0
    read -r known <"$run/view"
    [ "$view" = "$known" ] || unjoined=yes
}

# Whether a server of this pod has joined a cluster before this start.
has_served() { [ -s "$run/joined" ] || { is_file "$status_file" && grep -Eqs '"state": *"(JOINED|SYNCED|DONOR)"' "$status_file"; }; }

# Members that restore a view ask no other members. If all are in it, one of them has the newest data, and Galera compares their
# positions. If not, the donor may be missing, and the others would continue with older data, or as a new cluster.
judge_view() {
    [ -e "$home/gvwstate.dat" ] || return 0
    case $parts in .id.view.member*.end) ;; *) set_view_aside "it is cut short" && return 0 ;; esac
    [ -z "$compared" ] || [ -n "$unjoined" ] || return 0
    [ -z "$missing" ] || [ "$missing" -gt 0 ] || return 0
    why="the data has no position that Galera compares"
    [ -z "$unjoined" ] || why="the server that wrote it had not joined"
    set_view_aside "$why, and not all members are in it"
}

# Sets user, and may_signal: root without the capability KILL cannot signal a server of another user.
look_at_self() {
    user='' may_signal=yes capabilities=''
    while read -r key value _; do
        case $key in Uid:) user=$value ;; CapEff:) capabilities=$value ;; esac
    done <"$proc/self/status"
    [ "$user" = 0 ] || return 0
    case $capabilities in *[014589cd]?) may_signal='' ;; esac
}

# Asks the server for the position, with exactly the arguments of its start. Sets position.
recover() {
    log=$run/recovery.log position=''
    put "$log" '' || { log=${TMPDIR:-/tmp}/gatera-recovery.log && put "$log" ''; }
    if [ "$user" = 0 ]; then
        # The image does so too, but later.
        find "$datadir/." "$home/." ! -user mysql -exec chown -h mysql: {} + 2>/dev/null
        set -- "$@" --user=mysql
    fi
    # The position is printed here, regardless of option files. The saved buffer pool is neither loaded nor overwritten.
    LC_ALL=C "$server" "$@" --wsrep-recover --disable-log-error --loose-silent-startup=OFF \
        --loose-innodb-buffer-pool-dump-at-shutdown=OFF --loose-innodb-buffer-pool-load-at-startup=OFF \
        2>>"$log" >/dev/null </dev/null &
    recovering=yes
    await
    recovering='' child=''
    [ -z "$asked" ] || exit 143
    prepared='' skipped='' hindered=''
    is_file "$log" || refuse "its position cannot be read: $log is not a file"
    while IFS= read -r line; do
        case $line in
            *"WSREP: Recovered position: "*) position=${line##*"WSREP: Recovered position: "} ;;
            *"skipping position recovery"*) skipped=yes ;;
            *"non-prepared transaction"*) ;; # also where none is prepared
            *"prepared transaction"*) prepared=yes ;;
            *"No space left on device"* | *"rror number 28"* | *"with error 28"*) hindered='its disk is full' ;;
            *"Read-only file system"* | *"rror number 30"* | *"with error 30"*) hindered='it is read-only' ;;
        esac
    done <"$log"
    [ -z "$skipped" ] || return 0
    case $position in
        *[!0-9a-f:,-]*) position='' ;;
        "$zeros":-1) position=none ;;
        "$zeros":*) number=${position#*:} position=anonymous ;;
    esac
    if [ "$code" != 0 ] || [ -z "$position" ]; then
        while IFS= read -r line; do echo "$line"; done <"$log" >&2
        [ -z "$hindered" ] || refuse "$datadir cannot be written ($hindered), so the server could not read its position; correct" \
            "that, and this member starts again"
        # Without an id in grastate.dat Galera uses no position, and copies everything.
        [ -n "$uuid$prepared" ] || { position=unasked && return 0; }
        [ -z "$prepared" ] || refuse "prepared transactions must be committed or rolled back by hand; the log shows the server's" \
            "messages; if other members have the data, empty $datadir, and this one copies everything from them"
        name_option "$log"
        refuse "its position could not be recovered (exit code $code${words:+: $words}; the log shows the server's messages); if" \
            "other members have the data, remove grastate.dat and gvwstate.dat from $home, and this one copies everything from" \
            "them; annotation gatera.dev/start: keep on the pod template starts it without this step"
    fi
}

# Sets words: which option the server does not accept, from its messages in this file. Never the value, which may be a password.
name_option() {
    words=''
    while IFS= read -r text; do
        case $text in
            *"[ERROR]"*" unknown variable '"*) option=${text##*" unknown variable '"} words='unknown variable' ;;
            *"[ERROR]"*" unknown option '"*) option=value words='an option that the server does not know, without a' ;;
            *"[ERROR]"*" setting value '"*"' to '"*) option=${text##*"' to '"} words='a value that the server does not take, of' ;;
            *) continue ;;
        esac
        option=${option%%[= \']*}
        case $option in '' | *[!A-Za-z0-9_-]*) words='' ;; *) words="$words $option" && return ;; esac
    done <"$1"
} 2>/dev/null

# Adds the reason to the termination message if the server ended because of an option: it names the option when it is run with
# --help, as images run it.
explain_end() {
    log=$run/recovery.log ended=$code
    put "$log" '' || return 0
    shift "$before"
    [ "$user" != 0 ] || set -- "$@" --user=mysql
    LC_ALL=C "$server" "$@" --disable-log-error --verbose --help 2>>"$log" >/dev/null </dev/null &
    recovering=yes
    await
    code=$ended recovering='' child=''
    name_option "$log"
    [ -n "$words" ] || return 0
    say "the server ended: $words"
    { echo "$line; the server ended: $words" >"$message"; } 2>/dev/null
}

# Waits for the child that was started last. A signal interrupts `wait`, but not the child; one that came before its number was
# known is passed on now. If the child ended meanwhile, the next `wait` returns its exit code; after that, `wait` returns 127.
await() {
    child=$! heard=''
    [ -z "$asked" ] || stop
    wait "$child"
    code=$?
    while [ -n "$heard" ]; do
        heard=''
        wait "$child" 2>/dev/null
        again=$?
        [ "$again" = 127 ] || code=$again
    done
}

# Passes SIGTERM on to the server. A server that has not joined ignores it while it waits for others or receives a copy, and will
# do the same at its next start: it is killed. One that has joined, or whose state is unknown, gets all the time it needs.
# shellcheck disable=SC2317 # by `trap`
stop() {
    asked=yes
    [ -n "$child" ] || return 0
    if [ -n "$recovering" ]; then
        kill -KILL "$child" # as harmless as a crash, and it ignores SIGTERM, too
        return 0
    fi
    known=$(sh "$here/wait-for-sync.sh" started quietly 2>/dev/null) && known='' # it has joined
    [ -e "$status_file" ] || known='' # it answered a client, so it obeys SIGTERM
    (
        # The image prepares the data; a first start that is cut short would leave half of it.
        while read -r comm <"$proc/$child/comm" && [ "$comm" = docker-entrypoi ]; do sleep 1; done
        kill -TERM "$child"
    ) 2>/dev/null &
    [ ! -s "$run/joined" ] || return 0
    case $known in "the server is "*) ;; *) return 0 ;; esac
    (
        sleep 3
        say "the server has not joined and ignores SIGTERM while it waits, so it is killed"
        kill -KILL "$child"
    ) &
    killer=$!
}

# Finds out where this member starts from. Sets position and founds, which are added to the command.
prepare() {
    read_options "$@"
    put "$run/home" "$home" # where the probes find the cluster's id
    read_state
    distrust_agent
    [ -z "$uuid" ] || rm -f "$mark" 2>/dev/null
    position='' own='' at='' founds='' compared='' resumes=''
    ! has_served || mkdir "$run/resumed" 2>/dev/null
    look_back
    read_recorded
    gate
    if [ -z "$uuid" ] && ! holds_data && ! is_half_a_copy; then
        tell "empty"
    elif [ -n "$own_position" ]; then
        tell "position $own_position by option"
        [ "${own_position%%:*}" != "$uuid" ] || compared=yes
    # A server that stops in order removes its view. One that a lock has paused writes its position, too, and may crash
    # afterwards: then grastate.dat may name a later position than the data on the disk has.
    elif [ -n "$uuid" ] && [ -n "$seqno" ] && [ ! -e "$home/gvwstate.dat" ] && [ -z "$resumes" ] && ! is_the_agents; then
        at=$uuid:$seqno
        tell "position $at, stopped in order"
    elif is_half_a_copy; then
        tell "a state transfer was not finished"
    else
        say "the server was not stopped in order: asking it for its position"
        rm -f "$datadir/sst_in_progress" 2>/dev/null # nothing came, and being asked makes the data newer
        recover "$@"
        own=${position%%:*}
        ! is_id "$own" || at=${position%%,*}
        case $position in
            "$uuid":*)
                tell "position $position, recovered after a crash"
                case $position in "$uuid":-*) ;; *) compared=yes ;; esac
                ;;
            '')
                tell "position unknown, because wsrep is off"
                compared=yes # with no member: it restores no view
                ;;
            none)
                position=''
                tell "position unknown: InnoDB holds none"
                set_view_aside "the data has no position"
                ;;
            unasked)
                position=''
                tell "position unknown: the server could not be asked, and grastate.dat has no id"
                set_view_aside "the data has no position"
                ;;
            anonymous)
                position=''
                tell "position unknown: its cluster was formed without an identity (transaction $number)"
                set_view_aside "positions without an identity cannot be compared"
                ;;
            *)
                tell "position $position, in a DDL or grastate.dat was lost"
                position=''
                set_view_aside "grastate.dat does not carry the id of the data, so Galera would not compare it"
                ;;
        esac
    fi
    lead
    resume
    judge_view
    name_stranger
}

# Reports where the data ends, for `gatera stop`: the kubelet keeps this message until the pod is gone.
tell_end() {
    read_state
    [ -n "$uuid" ] && [ -n "$seqno" ] || return 0
    now=$(date -u +%Y-%m-%dT%H:%M:%SZ 2>/dev/null) || now='an unknown time'
    line="stop of $now: position $uuid:$seqno, safe_to_bootstrap ${safe:-unknown}"
    say "$line"
    { echo "$line" >"$message"; } 2>/dev/null
}

# Prints how many members the server is connected to. An IPv4 address may appear with an IPv6 prefix, too.
peers() {
    seen=' ' count=0 group=$(printf %04X "${GATERA_GROUP_PORT:-4567}") prefix='\(0000000000000000FFFF0000\)*'
    # shellcheck disable=SC2013 # addresses have no blanks
    for peer in $(sed -n -e "s/^ *[0-9]*: [0-9A-F]*:$group $prefix\\([0-9A-F]*\\):[0-9A-F]* 01 .*/\\2/p" \
        -e "s/^ *[0-9]*: [0-9A-F]*:[0-9A-F]* $prefix\\([0-9A-F]*\\):$group 01 .*/\\2/p" "$proc/net/tcp" "$proc/net/tcp6" 2>/dev/null); do
        case $seen in *" $peer "*) ;; *) seen="$seen$peer " count=$((count + 1)) ;; esac
    done
    echo "$count"
}

# Until the server has joined: makes the mark of a copy that replaces the data, before the script of the copy can remove its own
# file; and ends a server that hangs, because it has to be started again, or because nothing comes in: its donor is gone, or busy.
# If a server of this pod was ended for that before, the next one gets more time ($longest) until its donor connects. A server
# that has replaced this shell may not be signalled.
watch_over() {
    looks=0 silent=0 came='' stays='' port=$(printf %04X "${GATERA_SST_PORT:-4444}")
    while sleep 1 >/dev/null 2>&1 && [ ! -s "$run/joined" ]; do
        [ -n "$may_signal" ] || [ -e "$proc/$$" ] || return
        read_state
        ! is_half_a_copy || [ -e "$mark" ] || put "$mark" "a state transfer was not finished"
        ! grep -qs "^ *[0-9]*: [0-9A-F]*:$port [0-9A-F:]* 01 " "$proc/net/tcp" "$proc/net/tcp6" || came=yes
        [ -n "$may_signal" ] || continue
        looks=$((looks + 1))
        [ $((looks % 5)) = 0 ] || continue
        reply=$(sh "$here/wait-for-sync.sh" started quietly 2>/dev/null)
        case $reply in
            *'node restart required'*) why="the server says that it has to be started again, and does not end" ;;
            *', and nothing comes in'*)
                silent=$((silent + 5))
                [ -e "$datadir/sst_in_progress" ] || silent=0
                limit=$silence
                [ -n "$came" ] || [ ! -e "$run/waited" ] || limit=$longest
                [ "$silent" -ge "$limit" ] || continue
                why="nothing has come in for $((silent / 60 + 2)) minutes (its donor is gone, or busy)"
                ;;
            *) silent=0 stays='' && continue ;;
        esac
        # A joiner counts for the majority: the only other member could not serve without it. A first install has no clients yet.
        case $recorded,$reply,$(peers) in
            ?*,*"is JOINING"*,1)
                [ -n "$stays" ] || say "$why; this member stays until another one is back: without its vote the member that serves would stop"
                stays=yes
                continue
                ;;
        esac
        case $why in nothing*) put "$run/waited" yes ;; esac
        say "$why"
        kill -TERM $$
        return
    done
    [ ! -s "$run/joined" ] || rm -f "$mark" "$datadir/sst_in_progress" "$run/waited"
}

# Passes SIGHUP on: the server reopens its log files.
# shellcheck disable=SC2317 # by `trap`
pass_on() { [ -z "$child" ] || kill -HUP "$child" 2>/dev/null; }

[ $# -gt 0 ] || refuse "no command was given"
look_at_self
trap 'heard=yes; stop' TERM INT QUIT
trap 'heard=yes; pass_on' HUP
split_command "$@" || [ -n "${GATERA_ONLY_TELLS:-}" ] || exec "$@" # not a server: it starts unchanged
command -v "$1" >/dev/null || refuse "this image has no $1; annotation gatera.dev/start: keep on the pod template leaves its" \
    "command alone"
of_server() { shift "$before"; prepare "$@"; }
of_server "$@"
[ -z "$position" ] || set -- "$@" "--wsrep-start-position=$position"
[ -z "$founds" ] || set -- "$@" "$founds"
[ -z "$asked" ] || exit 143
watch_over &
watcher=$!
[ -n "$may_signal" ] || exec "$@"
"$@" &
await
kill -KILL "$watcher" 2>/dev/null
[ -z "$killer" ] || kill "$killer" 2>/dev/null
[ -z "$asked" ] || [ "$code" != 0 ] || tell_end
[ -n "$asked" ] || [ "$code" = 0 ] || [ -s "$run/joined" ] || explain_end "$@"
look_back
[ -z "$unjoined" ] || [ ! -w "$home" ] || judge_view
exit "$code"

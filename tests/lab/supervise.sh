#!/bin/sh
# Runs one program of the lab, and ends it when the test process ends in any way: after its tests, by a panic, Ctrl-C or SIGKILL.
# supervise.rs starts it.
#
# arguments: FOLDER INPUT PROGRAM [ARG...]
#   stdin   the lifeline: a pipe whose only write end lives in the test process. A line written to it, or its closing,
#           ends PROGRAM.
#   FOLDER  removed when the lifeline closes, after PROGRAM is dead. Empty: nothing is removed.
#   INPUT   the file that PROGRAM reads as its stdin
#   exit    with the status of PROGRAM
#
# Every program of a control plane has such a supervisor, and each of them removes the folder. An earlier removal may leave
# files that another program still writes; the last one removes them, too.
exec 3<&0
folder=$1
input=$2
shift 2

"$@" <"$input" 3<&- &
program=$!

{
    read -r _ <&3
    closed=$?
    # From here on, the SIGTERM below does not stop this watcher.
    trap '' TERM
    # SIGKILL at once: it always works, and what these programs could still save would be removed with the folder.
    kill -KILL "$program"
    [ "$closed" -ne 0 ]
} >/dev/null 2>&1 &
watcher=$!
exec 3<&- </dev/null

wait "$program"
status=$?
# If the program ended by itself, the watcher still waits, and this signal ends it. A watcher that is killing the program
# ignores the signal, and succeeds if the lifeline was closed. One that has ended may have been reaped above, and then its number
# may already be that of another process, which is no child of this shell.
{ read -r state </proc/"$watcher"/stat; } 2>/dev/null || state=
# shellcheck disable=SC2086 # its fields, after the name in parentheses
set -- ${state##*) }
if [ "${2:-}" = $$ ] || [ ! -e /proc/self/stat ]; then
    kill -TERM "$watcher" 2>/dev/null
fi
if wait "$watcher" 2>/dev/null && [ -n "$folder" ]; then
    rm -rf "$folder"
fi
exit "$status"

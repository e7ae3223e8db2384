#!/bin/sh
# Runs one program of the lab and ends it when the test process is gone, however that went: returned, panicked, Ctrl-C,
# SIGKILL. Started by supervise.rs.
#
# arguments: FOLDER INPUT PROGRAM [ARG...]
#   stdin   the lifeline: a pipe whose only write end lives in the test process. A line written to it, or its closing,
#           ends PROGRAM.
#   FOLDER  removed when the lifeline closes, after PROGRAM is dead. Empty: nothing is removed.
#   INPUT   the file that PROGRAM reads as its stdin
#   exit    with the status of PROGRAM
#
# Every program of a control plane has such a supervisor and each of them removes the folder. Only the last removal is
# sure to find nobody writing any more, and whichever that is, it comes last.
exec 3<&0
folder=$1
input=$2
shift 2

"$@" <"$input" 3<&- &
program=$!

{
    read -r _ <&3
    closed=$?
    # From here on the guard is not to be called off any more; see below.
    trap '' TERM
    # No gentle end: nothing these programs could still save outlives the folder, and SIGKILL needs no second try.
    kill -KILL "$program"
    [ "$closed" -ne 0 ]
} >/dev/null 2>&1 &
guard=$!
exec 3<&- </dev/null

wait "$program"
status=$?
# A program that ended by itself leaves a guard that still waits, and dies of this. A guard at work ignores it, and ends
# with success when it saw the lifeline close.
kill -TERM "$guard" 2>/dev/null
if wait "$guard" 2>/dev/null && [ -n "$folder" ]; then
    rm -rf "$folder"
fi
exit "$status"

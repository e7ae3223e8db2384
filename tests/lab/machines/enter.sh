#!/bin/sh
# Runs one program of the node lab in namespaces of its own: mounts, network, processes. The program sees this machine's
# files, and only the network that is made here, which leads nowhere. When the program ends or crashes, everything that it
# started is ended, too. `make e2e` and `make lab` use this script.
#
# usage: enter.sh PROGRAM [ARG...]      root, on Linux
#        enter.sh --check               only checks whether this machine can run the lab
#
# PROGRAM finds in its environment
#   GATERA_LAB         an empty folder, removed afterwards (GATERA_LAB_KEEP=1 keeps it, for a look at the logs)
#   GATERA_LAB_IMAGES  the folder of container images, see ../../e2e/images/build.sh
#   GATERA_LAB_CGROUP  the control group to put containers in
# Exit status: PROGRAM's; 77 if this machine cannot run the lab, with the reason.
set -eu
unset CDPATH

say() { printf '%s\n' "$*" >&2; }

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera

require() {
    if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
        say "The node lab runs real kubelets and containers: it needs root on Linux. (make test needs neither.)"
        exit 77
    fi
    missing=''
    for tool in containerd ctr runc unshare flock ip nft debootstrap; do
        command -v "$tool" >/dev/null || missing="$missing $tool"
    done
    [ -x /usr/lib/cni/ptp ] || missing="$missing /usr/lib/cni/ptp"
    if [ -n "$missing" ]; then
        say "The node lab lacks:$missing"
        say "On Debian: apt-get install containerd runc containernetworking-plugins debootstrap busybox-static iproute2 nftables"
        exit 77
    fi
    if ! unshare --mount --net --pid --fork true; then
        say "The node lab needs namespaces of its own, and this machine does not let root make them."
        exit 77
    fi
}

# Prints the path of a control group in each hierarchy: there are several in version 1, and one in version 2.
each_cgroup() {
    for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [ -f "$root/cgroup.procs" ] && echo "$root/$1"
    done
}

remove_cgroups() {
    for group in $(each_cgroup "$1"); do
        [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    return 0
}

# A running lab holds the lock of its folder, so a folder whose lock is free is left over from an earlier lab.
remove_lab() {
    remove_cgroups "gatera-lab-${1##*/}"
    rm -rf "$1" "$1.lock"
}

sweep() {
    for lock in "$cache"/labs/*.lock; do
        [ -e "$lock" ] || continue
        if flock -n "$lock" true; then remove_lab "${lock%.lock}"; fi
    done
}

leave() {
    status=$?
    trap - EXIT INT TERM
    if [ "${GATERA_LAB_KEEP:-}" = 1 ]; then
        say "GATERA_LAB_KEEP: the lab's folder is $GATERA_LAB"
        remove_cgroups "$GATERA_LAB_CGROUP"
        rm -f "$GATERA_LAB.lock"
    else
        remove_lab "$GATERA_LAB"
    fi
    exit "$status"
}

outside() {
    require
    "$here/../tools/build.sh" etcd kube-apiserver kube-controller-manager kubectl helm \
        kube-scheduler kubelet kube-proxy coredns >/dev/null
    GATERA_LAB_IMAGES=${GATERA_LAB_IMAGES:-$("$here/../../e2e/images/build.sh")}
    "$here/unpack.sh" "$GATERA_LAB_IMAGES"

    mkdir -p "$cache/labs"
    sweep
    # Beside the images and not in a temp folder: image layers are shared by hard links.
    GATERA_LAB=$(mktemp -d "$cache/labs/XXXXXX")
    GATERA_LAB_CGROUP=gatera-lab-${GATERA_LAB##*/}
    export GATERA_LAB GATERA_LAB_CGROUP GATERA_LAB_IMAGES
    trap leave EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    exec 8>"$GATERA_LAB.lock"
    flock -n 8
    for group in $(each_cgroup "$GATERA_LAB_CGROUP"); do mkdir -p "$group"; done
    unshare --mount --net --pid --fork --kill-child --mount-proc --propagation=private /bin/sh "$0" --inside "$@"
}

# Runs in the namespaces. What programs write to fixed places stays in this lab.
inside() {
    mount --make-rshared /
    for place in /run /var/log /var/lib/cni /var/lib/kubelet /opt/containerd; do
        mkdir -p "$place"
        mount -t tmpfs -o mode=755 tmpfs "$place"
    done
    # The controller manager's volume provisioner puts volumes there and nowhere else.
    mkdir -p /tmp/hostpath_pv "$GATERA_LAB/volumes"
    mount --bind "$GATERA_LAB/volumes" /tmp/hostpath_pv

    # A kubelet sets these for the whole machine unless it finds them set.
    mkdir "$GATERA_LAB/sysctl"
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
        kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
        file=$GATERA_LAB/sysctl/${setting##*/}
        echo "${setting#*=}" >"$file"
        mount --bind "$file" "/proc/sys/${setting%%=*}"
    done

    ip link set lo up
    # Not every kernel has dummy devices. One end of a pair carries the addresses of the control plane and the nodes.
    ip link add lab0 type veth peer name lab1
    ip link set lab1 up
    ip link set lab0 up
    for host in 10 11 12 13; do ip address add "192.0.2.$host/24" dev lab0; done
    ip route replace default dev lab0
    echo 1 >/proc/sys/net/ipv4/ip_forward
    # No exec: this shell reaps the processes that containers leave behind, and holds the lock while the lab runs.
    "$@" 8>&-
}

case ${1:-} in
    --inside) shift; inside "$@" ;;
    --check) require ;;
    '') say "usage: $0 PROGRAM [ARG...]"; exit 64 ;;
    *) outside "$@" ;;
esac

#!/bin/sh
# Builds the lab's programs from the versions pinned in go.mod beside it, once, into a cache outside the tree.
#
# usage: build.sh [TOOL...]      default: etcd kube-apiserver kube-controller-manager kubectl
# also:  coredns helm kube-proxy kube-scheduler kubelet kwok; and, alone, promtool
#
# The last line on stdout is the folder with the programs; progress goes to stderr. The folder is named after the hash
# of go.mod and go.sum, so new versions get a new folder and what is in one is never stale.
# Exit status: 1 a build failed, 2 unknown tool, 3 Go is missing.
set -eu
unset CDPATH
cd "$(dirname "$0")"

say() { printf '%s\n' "$*" >&2; }

package_of() {
    case $1 in
    coredns) echo github.com/coredns/coredns ;;
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
    promtool) echo github.com/prometheus/prometheus/cmd/promtool ;;
    kube-apiserver | kube-controller-manager | kube-proxy | kube-scheduler | kubectl | kubelet)
        echo "k8s.io/kubernetes/cmd/$1" ;;
    *)
        say "$0: no tool is called '$1'"
        return 2 ;;
    esac
}

pinned_hash() {
    if command -v sha256sum >/dev/null; then
        cat go.mod go.sum | sha256sum
    else
        cat go.mod go.sum | shasum -a 256
    fi | cut -c 1-16
}

all_built() {
    for tool; do [ -x "$folder/$tool" ] || return 1; done
}

require_go() {
    command -v go >/dev/null && return
    say "The control-plane lab builds etcd and the Kubernetes programs from source, and 'go' is not on the PATH."
    say "Install Go $(sed -n 's/^go //p' go.mod) or newer, or set KUBEBUILDER_ASSETS to a folder that holds"
    say "etcd, kube-apiserver, kube-controller-manager and kubectl."
    exit 3
}

# One builder at a time: the second waits and then finds everything done. Without flock both build, which is only slow:
# a program appears under its name when it is complete, never before.
lock() {
    command -v flock >/dev/null || return 0
    exec 9>"$folder/.lock"
    if ! flock -n 9; then
        say "another build of the lab's programs is under way, waiting for it …"
        flock 9
    fi
    rm -rf "$folder"/.building.*
}

# Unset, the API server calls itself v0.0.0 and clients that compare versions go wrong.
version_flags() {
    version=$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes \(v[0-9.]*\).*/\1/p' go.mod)
    minor=${version#v*.}
    component_base=k8s.io/component-base/version
    echo "-s -w -X $component_base.gitVersion=$version" \
        "-X $component_base.gitMajor=1 -X $component_base.gitMinor=${minor%%.*}"
}

# What `go build` calls it.
executable_of() {
    case $1 in
    etcd) echo server ;;
    *) echo "$1" ;;
    esac
}

# Whoever waits for minutes wants to see that something happens, and not every line of it.
heartbeat() {
    minutes=0
    while sleep 60 >/dev/null 2>&1 9>&- && kill -0 $$ 2>/dev/null; do
        minutes=$((minutes + 1))
        say "  … $minutes min"
    done
}

# All at once: what they share is compiled once, and while one is linked the others are compiled.
build() {
    packages=
    for tool; do packages="$packages $(package_of "$tool")"; done
    heartbeat &
    beats=$!
    # A workspace file above the tree must not decide what is built here.
    # shellcheck disable=SC2086 # several packages
    GOWORK=off CGO_ENABLED=0 go build -mod=readonly -trimpath -tags "$tags" -ldflags "$(version_flags)" \
        -o "$temporary/" $packages >"$temporary/log" 2>&1 || {
        grep -v '^go: downloading ' "$temporary/log" >&2
        say "building $* failed"
        exit 1
    }
    kill "$beats"
    for tool; do mv "$temporary/$(executable_of "$tool")" "$folder/$tool"; done
}

[ $# -gt 0 ] || set -- etcd kube-apiserver kube-controller-manager kubectl
for tool; do package_of "$tool" >/dev/null; done

# What it requires is not what Kubernetes requires, so it has a go.mod, and a folder, of its own.
tags=
if [ "$*" = promtool ]; then
    cd promtool
    # Without the clients of all clouds, in which it would look for something to scrape.
    tags=remove_all_sd
fi

folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/kube-tools/$(pinned_hash)
if ! all_built "$@"; then
    require_go
    mkdir -p "$folder"
    lock
    temporary=$(mktemp -d "$folder/.building.XXXXXX")
    beats=
    # The heartbeat may be gone by then, which is no failure of the build.
    trap 'rm -rf "$temporary"; kill $beats 2>/dev/null || :' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    # Keeps only what is missing.
    for tool; do
        shift
        [ -x "$folder/$tool" ] || set -- "$@" "$tool"
    done
    say "building $* (some minutes, once) …"
    started=$(date +%s)
    build "$@"
    say "built in $(($(date +%s) - started)) s"
fi
echo "$folder"

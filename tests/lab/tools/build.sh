#!/bin/sh
# Builds the lab's programs from the versions pinned in go.mod beside it, once, into a cache outside the tree.
#
# usage: build.sh [TOOL...]      default: etcd kube-apiserver kube-controller-manager kubectl
# also:  actionlint argocd coredns helm helm-controller kube-proxy kube-scheduler kube-score kubectl-kudo kubelet kudo-manager
#        kustomize-controller kwok mysqld_exporter prometheus promtool source-controller
#
# GATERA_KUBERNETES=1.33  another Kubernetes than the one pinned in go.mod: its programs come from kubernetes-1.33
# GATERA_HELM=3           another Helm, from helm-3
#
# The last line on stdout is the folder with the programs; progress goes to stderr. The folder is named after the hash
# of go.mod and go.sum, so new versions get a new folder, and no folder has old programs. If the programs are pinned in
# several places, the folder has links to all of them, and is named after the hash of all these files.
# Exit status: 1 a build failed, 2 unknown tool or version, 3 Go is missing.
set -eu
unset CDPATH
cd "$(dirname "$0")"

say() { printf '%s\n' "$*" >&2; }

package_of() {
    case $1 in
    actionlint) echo github.com/rhysd/actionlint/cmd/actionlint ;;
    argocd) echo github.com/argoproj/argo-cd/v3/cmd ;;
    coredns) echo github.com/coredns/coredns ;;
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    helm) echo "helm.sh/helm/v${GATERA_HELM:-4}/cmd/helm" ;;
    kube-score) echo github.com/zegl/kube-score/cmd/kube-score ;;
    kubectl-kudo) echo github.com/kudobuilder/kudo/cmd/kubectl-kudo ;;
    kudo-manager) echo github.com/kudobuilder/kudo/cmd/manager ;;
    helm-controller | kustomize-controller | source-controller) echo "github.com/fluxcd/$1" ;;
    mysqld_exporter) echo github.com/prometheus/mysqld_exporter ;;
    kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
    prometheus | promtool) echo "github.com/prometheus/prometheus/cmd/$1" ;;
    kube-apiserver | kube-controller-manager | kube-proxy | kube-scheduler | kubectl | kubelet)
        echo "k8s.io/kubernetes/cmd/$1" ;;
    *)
        say "$0: no tool is called '$1'"
        return 2 ;;
    esac
}

# The folder whose go.mod pins a program: this one, or one of its own if its requirements differ from the others'.
module_of() {
    case $1 in
    helm) release_of helm "${GATERA_HELM:-}" ;;
    *kudo*) echo kudo ;;
    actionlint | argocd | kube-score | mysqld_exporter | promtool) echo "$1" ;;
    prometheus) echo promtool ;;
    helm-controller | kustomize-controller | source-controller) echo flux ;;
    kube*) release_of kubernetes "${GATERA_KUBERNETES:-}" ;;
    *) echo . ;;
    esac
}

release_of() {
    if [ -z "$2" ] || grep -Eq "/$1(/v[0-9]+)? v$2\\." go.mod; then
        echo .
    elif [ -f "$1-$2/go.mod" ]; then
        echo "$1-$2"
    else
        say "$0: no $1 $2 is pinned here; besides the usual one there are: $(ls -d "$1"-*)"
        return 2
    fi
}

short_hash() {
    if command -v sha256sum >/dev/null; then
        sha256sum
    else
        shasum -a 256
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

# One builder at a time: a second one waits and then finds everything built. Without flock both build, which costs only time,
# because a program gets its name when it is complete.
lock() {
    command -v flock >/dev/null || return 0
    exec 9>"$folder/.lock"
    if ! flock -n 9; then
        say "another build of the lab's programs is under way, waiting for it …"
        flock 9
    fi
    rm -rf "$folder"/.building.*
}

# The version of a module: v1.36.3.
pinned() {
    sed -n "s|^\(require\)\{0,1\}[[:space:]]*$1 \(v[0-9.]*\).*|\2|p" go.mod
}

# Without these flags, the API server would report version v0.0.0, which misleads clients that compare versions; and Helm 3
# would render charts for Kubernetes 1.20 instead of the version that its releases render them for.
version_flags() {
    flags="-s -w"
    version=$(pinned k8s.io/kubernetes)
    if [ "$version" ]; then
        minor=${version#v*.}
        of=k8s.io/component-base/version
        flags="$flags -X $of.gitVersion=$version -X $of.gitMajor=1 -X $of.gitMinor=${minor%%.*}"
    fi
    version=$(pinned helm.sh/helm/v3)
    if [ "$version" ]; then
        minor=$(pinned k8s.io/client-go)
        minor=${minor#v*.}
        of=helm.sh/helm/v3
        flags="$flags -X $of/internal/version.version=$version"
        for of in "$of/pkg/chartutil" "$of/pkg/lint/rules"; do
            flags="$flags -X $of.k8sVersionMajor=1 -X $of.k8sVersionMinor=${minor%%.*}"
        done
    fi
    echo "$flags"
}

# The name that `go build` gives to a program.
executable_of() {
    case $1 in
    argocd) echo cmd ;;
    etcd) echo server ;;
    kudo-manager) echo manager ;;
    *) echo "$1" ;;
    esac
}

# Prints a line every minute, so that a user sees progress without all the output of the build.
heartbeat() {
    minutes=0
    while sleep 60 >/dev/null 2>&1 9>&- && kill -0 $$ 2>/dev/null; do
        minutes=$((minutes + 1))
        say "  … $minutes min"
    done
}

# Builds all programs at once: what they share is compiled once, and while one is linked the others are compiled.
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

# Runs this script once for each folder that pins some of the programs, and makes a folder of links to all of them.
link_all() {
    folder=$cache/$(for module in $modules; do cat "$module/go.mod" "$module/go.sum"; done | short_hash)
    mkdir -p "$folder"
    for module in $modules; do
        ours=
        for tool; do [ "$(module_of "$tool")" != "$module" ] || ours="$ours $tool"; done
        # shellcheck disable=SC2086 # several tools
        built=$("./${0##*/}" $ours)
        for tool in $ours; do [ -x "$folder/$tool" ] || ln -sf "$built/$tool" "$folder/"; done
    done
}

[ $# -gt 0 ] || set -- etcd kube-apiserver kube-controller-manager kubectl
modules=
for tool; do
    package_of "$tool" >/dev/null
    module=$(module_of "$tool")
    case " $modules " in
    *" $module "*) ;;
    *) modules="$modules $module" ;;
    esac
done
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/kube-tools
if [ "$modules" != " $module" ]; then
    link_all "$@"
    echo "$folder"
    exit
fi

cd "$module"
tags=
# Leaves out service discovery, which would need the client libraries of all clouds.
[ "$module" != promtool ] || tags=remove_all_sd
folder=$cache/$(cat go.mod go.sum | short_hash)
if ! all_built "$@"; then
    require_go
    mkdir -p "$folder"
    lock
    temporary=$(mktemp -d "$folder/.building.XXXXXX")
    beats=
    # If the heartbeat has ended by then, that is not a failure of the build.
    trap 'rm -rf "$temporary"; kill $beats 2>/dev/null || :' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    # Only the missing programs are built.
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

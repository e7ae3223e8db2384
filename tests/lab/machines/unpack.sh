#!/bin/sh
# Unpacks the lab's images once, into a containerd root that node.rs copies for every node.
#
# usage: unpack.sh IMAGES      makes IMAGES/containerd
set -eu

if [ "${1:-}" != --inside ]; then
    [ -d "$1/containerd" ] && exit 0
    echo "unpacking the lab's images, once …" >&2
    exec unshare --mount --pid --fork --kill-child --mount-proc --propagation=private /bin/sh "$0" --inside "$1"
fi

images=$2
exec 9>"$images/.unpack.lock"
flock 9
[ -d "$images/containerd" ] && exit 0
building=$images/containerd.building
rm -rf "$building"
mkdir "$building"
mount -t tmpfs tmpfs /run
cat >/run/containerd.toml <<TOML
version = 2
root = "$building"
state = "/run/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "/run/containerd.sock"
TOML
containerd --config /run/containerd.toml >"$building.log" 2>&1 9>&- &
containerd=$!
tries=0
until ctr --address /run/containerd.sock version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { cat "$building.log" >&2; exit 1; }
    sleep 0.05
done
for archive in "$images"/*.tar; do
    ctr --address /run/containerd.sock --namespace k8s.io images import "$archive" >/dev/null
done
kill "$containerd"
wait "$containerd" || true
sync
mv "$building" "$images/containerd"
rm -f "$building.log"

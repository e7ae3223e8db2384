#!/bin/sh
# Builds a container image from a root file system, without a container engine: a docker-archive with one layer.
#
# usage: archive.sh ROOTFS CONFIG OUT.tar TAG...
#
# CONFIG is the "config" object of the image as JSON. The same root file system always gives the same archive. OUT.tar appears
# only when it is complete.
# Exit status: 1 it failed, 2 wrong usage.
set -eu
umask 022

[ $# -ge 4 ] || {
    printf 'usage: %s ROOTFS CONFIG OUT.tar TAG...\n' "$0" >&2
    exit 2
}
rootfs=$1 config=$2 out=$3
shift 3

sha256_of() { sha256sum "$1" | cut -c 1-64; }

# Fixes what differs between machines and runs: the order of files, their times, the names of users.
plain_tar() {
    tar --create --format=gnu --sort=name --mtime=@0 --numeric-owner "$@"
}

architecture() {
    case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
    esac
}

work=$(mktemp -d "$(dirname "$out")/.archive.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

plain_tar --directory="$rootfs" --file="$work/layer.tar" .
layer=$(sha256_of "$work/layer.tar")
mkdir "$work/image" "$work/image/$layer"
mv "$work/layer.tar" "$work/image/$layer/layer.tar"

cat >"$work/config.json" <<END
{"architecture":"$(architecture)","os":"linux","created":"1970-01-01T00:00:00Z","config":$config,
"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created":"1970-01-01T00:00:00Z"}]}
END
name=$(sha256_of "$work/config.json").json
mv "$work/config.json" "$work/image/$name"

tags=
for tag; do tags="$tags${tags:+,}\"$tag\""; done
printf '[{"Config":"%s","RepoTags":[%s],"Layers":["%s/layer.tar"]}]\n' "$name" "$tags" "$layer" \
    >"$work/image/manifest.json"

plain_tar --owner=0 --group=0 --directory="$work/image" --file="$work/image.tar" "$name" "$layer" manifest.json
mv "$work/image.tar" "$out"

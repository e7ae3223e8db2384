#!/bin/sh
# Builds the image of Gatera from a static program: that one file, run by a user without rights.
#
# usage: gatera.sh PROGRAM OUT.tar
#
# Exit status: 1 it failed, 2 wrong usage, 3 the program is not static.
set -eu
umask 022
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)

say() { printf '%s\n' "$*" >&2; }

[ $# -eq 2 ] || {
    say "usage: $0 PROGRAM OUT.tar"
    exit 2
}
[ -x "$1" ] || {
    say "$1 is not a program"
    exit 2
}
if ! ldd "$1" 2>&1 | grep -q -e 'statically linked' -e 'not a dynamic executable'; then
    say "$1 needs shared libraries, which the image does not have. Build it with"
    say "RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target x86_64-unknown-linux-gnu"
    exit 3
fi

work=$(mktemp -d "$(dirname "$2")/.gatera.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$work/root"
cp "$1" "$work/root/gatera"
chmod 755 "$work/root/gatera"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../../Cargo.toml" | head -n 1)
"$here/archive.sh" "$work/root" '{"User":"65532:65532","Entrypoint":["/gatera"],"WorkingDir":"/"}' "$2" \
    "docker.io/library/gatera:$version"

#!/bin/sh
# Prints the path of gatera: of the one on the PATH, or of the release that this revision belongs to. A release is downloaded
# once, and goes into the cache only if its checksum is right and, for a repository on github.com and with gh installed, if the
# workflow of the repository built it.
#
# usage: get.sh [URL TAG]      default: origin and tag of the checkout that this script is in
#
# Exit status: 1 it failed, 2 wrong usage, 3 this revision or platform has no release, or it could not be downloaded.
set -eu
umask 022
unset CDPATH

say() { printf '%s\n' "$*" >&2; }

if command -v gatera; then exit; fi
cd "$(dirname "$0")"
case $# in
0)
    url=$(git remote get-url origin)
    # pre-commit fetches one commit without its tags, so this asks the repository for the tag of this version.
    tag=v$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -n 1)
    git ls-remote origin "refs/tags/$tag" "refs/tags/$tag^{}" | grep -q "^$(git rev-parse HEAD)" || tag= ;;
2) url=$1 tag=$2 ;;
*)
    say "usage: $0 [URL TAG]"
    exit 2 ;;
esac
url=${url%.git}
version=${tag#v}
case $(uname -sm) in
"Linux x86_64") target=x86_64-unknown-linux-gnu ;;
"Linux aarch64") target=aarch64-unknown-linux-gnu ;;
"Darwin x86_64") target=x86_64-apple-darwin ;;
"Darwin arm64") target=aarch64-apple-darwin ;;
"MINGW64_NT-"*" x86_64") target=x86_64-pc-windows-msvc ;;
*) target= ;;
esac
if [ "$tag" = "$version" ] || [ -z "$target" ]; then
    say "There is no release of gatera for ${tag:-this revision} on $(uname -sm): install gatera, or name a tag as the revision."
    exit 3
fi

name=gatera-$version-$target
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/releases
program=$cache/$name/gatera
if [ ! -x "$program" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.getting.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    for file in "$name.tar.gz" SHA256SUMS; do
        curl --fail --silent --show-error --location --output "$work/$file" "$url/releases/download/$tag/$file" || {
            say "gatera $version could not be downloaded from $url"
            exit 3
        }
    done
    cd "$work"
    grep " $name.tar.gz\$" SHA256SUMS >expected || :
    sum=sha256sum
    command -v sha256sum >/dev/null || sum="shasum -a 256"
    { [ -s expected ] && $sum --status --check expected; } || {
        say "The checksum of $name.tar.gz is not the one in SHA256SUMS: it was not installed."
        exit 1
    }
    case $url in
    https://github.com/*)
        if command -v gh >/dev/null; then gh attestation verify "$name.tar.gz" --repo "${url#https://github.com/}" >&2; fi ;;
    esac
    tar -xzf "$name.tar.gz"
    # If two processes download at once, the program of the first one stays.
    mv "$name" "$cache/" 2>/dev/null || [ -x "$program" ]
fi
echo "$program"

#!/bin/sh
# Looks whether licences, sources and crates are those that deny.toml allows. Builds cargo-deny once (three minutes), into
# the cache outside the tree that the lab's programs are in. Advisories need a database from the network, and are left out.
set -eu
unset CDPATH
cd "$(dirname "$0")/../../.."

version=0.20.2
folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/cargo-deny/$version
if [ ! -x "$folder/bin/cargo-deny" ]; then
    printf '%s\n' "building cargo-deny $version (some minutes the first time) …" >&2
    cargo install --quiet --locked --root "$folder" --version "$version" cargo-deny
fi
exec "$folder/bin/cargo-deny" --locked --log-level error check --hide-inclusion-graph licenses bans sources

#!/bin/sh
# Looks for words that are spelled wrongly. Builds typos once (three minutes), into the cache outside the tree that the lab's
# programs are in. What is right although it looks wrong stands in typos.toml.
set -eu
unset CDPATH
cd "$(dirname "$0")/../../.."

version=1.52.0
folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/typos/$version
if [ ! -x "$folder/bin/typos" ]; then
    printf '%s\n' "building typos $version (some minutes the first time) …" >&2
    cargo install --quiet --locked --root "$folder" --version "$version" typos-cli
fi
exec "$folder/bin/typos" --format brief

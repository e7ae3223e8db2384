#!/bin/sh
# Runs a program from crates.io in the version pinned here. Builds it once (some minutes), into the cache of the lab's programs
# outside the tree.
#
# usage: crate.sh PROGRAM [ARGUMENT...]
set -eu

case ${1:-} in
# Finds misspelled words; typos.toml lists the exceptions.
typos) package=typos-cli version=1.52.0 ;;
# Checks that licences, sources and crates are those that deny.toml allows. Advisories are left out, because they need a database
# from the network.
cargo-deny) package=$1 version=0.20.2 ;;
# Lists the crates that the program is made of.
cargo-cyclonedx) package=$1 version=0.5.9 ;;
*)
    printf '%s\n' "usage: crate.sh typos|cargo-deny|cargo-cyclonedx [ARGUMENT...]" >&2
    exit 2 ;;
esac
program=$1
shift

folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/$package/$version
if [ ! -x "$folder/bin/$program" ]; then
    printf '%s\n' "building $program $version (some minutes the first time) …" >&2
    cargo install --quiet --locked --root "$folder" --version "$version" "$package"
fi
exec "$folder/bin/$program" "$@"

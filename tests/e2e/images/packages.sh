#!/bin/sh
# Installs Debian packages and their dependencies into a root file system, and packs it.
#
# usage: packages.sh FOLDER OUT.tar SUITE PACKAGE,PACKAGE…     works in FOLDER; build.sh calls it
#
# Exit status: 1 it failed, 3 no mirror is known.
set -eu
umask 022

say() { printf '%s\n' "$*" >&2; }

# Prints the Debian mirror that apt on this machine uses; a mirror has all suites.
mirror() {
    apt-get update --print-uris 2>/dev/null | sed -En "s#^'(.*)/dists/(bookworm|trixie)/InRelease'.*#\\1#p" | head -n 1
}

# Runs a command, and shows its output only if it fails.
step() {
    "$@" >"$folder/log" 2>&1 && return
    say "failed: $*"
    tail -n 20 "$folder/log" >&2
    exit 1
}

# Removes what no container needs, what depends on the time of the build, and tools for engines that Galera does not replicate.
remove_ballast() {
    cd "$root"
    rm -f etc/dpkg/dpkg.cfg.d/lab etc/machine-id etc/resolv.conf etc/hostname usr/sbin/policy-rc.d var/cache/ldconfig/aux-cache
    rm -f usr/bin/aria_* usr/bin/myisam* usr/bin/replace usr/bin/resolve_stack_dump usr/bin/resolveip
    rm -rf usr/share/doc usr/share/info usr/share/lintian usr/share/locale usr/share/man
    rm -rf usr/share/perl usr/share/perl5 usr/lib/*/perl usr/lib/*/perl5
    rm -rf dev/* run/* tmp/* var/cache/apt/* var/cache/debconf/* var/lib/apt/lists/* var/lib/mysql/* var/log/*
    cd "$OLDPWD"
}

folder=$1 out=$2 suite=$3 packages=$4
root=$folder/packages
mirror=${GATERA_DEBIAN_MIRROR:-$(mirror)}
if [ -z "$mirror" ]; then
    say "The images are made of Debian's $suite, and apt on this machine does not know where to get it."
    say "Set GATERA_DEBIAN_MIRROR to the address of a Debian mirror."
    exit 3
fi

started=$(date +%s)
step debootstrap --foreign --variant=minbase --include="$packages" "$suite" "$root" "$mirror"
say "fetched the packages in $(($(date +%s) - started)) s"

# Packages are configured in separate namespaces, with which all their processes and mounts end.
started=$(date +%s)
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/lab"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
step unshare --mount --pid --net --fork --kill-child chroot "$root" /debootstrap/debootstrap --second-stage
say "configured the packages in $(($(date +%s) - started)) s"

remove_ballast
tar --create --numeric-owner --directory="$root" --file="$folder/packages.tar" .
mv "$folder/packages.tar" "$out"

#!/bin/sh
# Builds the files of a release. The same commit gives the same files, byte by byte, in any folder.
#
# usage: release.sh platform|common [FOLDER]      default: target/release-VERSION
#
#   platform  what is built for the platform of this machine: the archive and, on Linux, a Debian package and an image
#   common    the rest, when the files of all platforms are in the folder: the charts, install.yaml, the list of crates (SBOM), the
#             manifest of a kubectl plugin for krew, and the checksums of all files
#
# GATERA_TARGET=TARGET            another Rust target than this machine's, for example x86_64-apple-darwin on arm64
# GATERA_REPOSITORY=URL           the repository whose releases people download from: for krew, and for links in the charts
# GATERA_IMAGE_REPOSITORY=NAME    the image that the charts name (REGISTRY/OWNER/gatera); default: gatera
# GATERA_IMAGE_DIGEST=sha256:…    its digest, which the charts then name, too
# Exit status: 1 it failed, 2 wrong usage, 3 a program is missing.
set -eu
umask 022
unset CDPATH
cd "$(dirname "$0")/.."
tree=$(pwd -P)

say() { printf '%s\n' "$*" >&2; }

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
folder=${2:-target/release-$version}
# Every file gets the time of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# macOS has a tar of its own.
tar=$(command -v gtar || command -v tar)

# usage: pack FOLDER NAME >ARCHIVE; order, times and owners (numbers instead of names) are the same on every machine.
pack() {
    "$tar" --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --directory="$1" "$2" | gzip --no-name --best
}

build() {
    flags="--remap-path-prefix=$tree=/source --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    case $target in
    *linux* | *windows*) flags="-C target-feature=+crt-static $flags" ;;
    esac
    # A target folder of its own, so that the build finds nothing that was compiled with other flags.
    RUSTFLAGS=$flags GATERA_COMMIT=$(git rev-parse HEAD) CARGO_INCREMENTAL=0 \
        cargo build --quiet --locked --release --bin gatera --target "$target" --target-dir target/shipped
    program=target/shipped/$target/release/gatera
    case $target in
    *windows*) program=$program.exe ;;
    esac
}

# usage: fill FOLDER; writes the manual pages and completions, as the built program prints them.
fill() {
    mkdir -p "$1/man" "$1/completions"
    "$program" man >"$1/man/gatera.1"
    for command in $("$program" --help | sed -n "s/^  \([a-z-]*\) .*/\1/p"); do "$program" man "$command" >"$1/man/gatera-$command.1"; done
    for shell in bash elvish fish powershell zsh; do "$program" completions "$shell" >"$1/completions/gatera.$shell"; done
}

archive() {
    name=gatera-$version-$target
    mkdir -p "$work/$name"
    cp "$program" LICENSE README.md CHANGELOG.md "$work/$name/"
    case $target in
    *windows*) ;;
    *)
        # kubectl finds a plugin, and what completes its arguments, by these names.
        ln -s gatera "$work/$name/kubectl-gatera"
        ln -s gatera "$work/$name/kubectl_complete-gatera" ;;
    esac
    fill "$work/$name"
    pack "$work" "$name" >"$folder/$name.tar.gz"
}

debian() {
    architecture=$(dpkg --print-architecture)
    root=$work/debian
    mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/man/man1" "$root/usr/share/doc/gatera" \
        "$root/usr/share/bash-completion/completions" "$root/usr/share/fish/vendor_completions.d" "$root/usr/share/zsh/vendor-completions"
    cp "$program" "$root/usr/bin/"
    ln -s gatera "$root/usr/bin/kubectl-gatera"
    ln -s gatera "$root/usr/bin/kubectl_complete-gatera"
    fill "$work/filled"
    gzip --no-name --best "$work"/filled/man/*
    cp "$work"/filled/man/* "$root/usr/share/man/man1/"
    cp "$work/filled/completions/gatera.bash" "$root/usr/share/bash-completion/completions/gatera"
    cp "$work/filled/completions/gatera.fish" "$root/usr/share/fish/vendor_completions.d/"
    cp "$work/filled/completions/gatera.zsh" "$root/usr/share/zsh/vendor-completions/_gatera"
    cp LICENSE "$root/usr/share/doc/gatera/copyright"
    {
        printf 'Package: gatera\nVersion: %s\nArchitecture: %s\nSection: database\nPriority: optional\n' "$version" "$architecture"
        printf 'Maintainer: the maintainers of gatera\n'
        printf 'Description: %s\n' "$(sed -n 's/^description = "\(.*\)"/\1/p' Cargo.toml | head -n 1)"
    } >"$root/DEBIAN/control"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$root" "$folder/gatera_${version}_$architecture.deb" >/dev/null
}

platform() {
    target=${GATERA_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
    build
    archive
    case $target in
    *linux*)
        if command -v dpkg-deb >/dev/null; then debian; else say "no Debian package: there is no dpkg-deb"; fi
        tests/e2e/images/gatera.sh "$program" "$folder/gatera-$version-image-$(uname -m).tar" ;;
    esac
}

# usage: chart NAME; packs a chart like `helm package`, with order, times and owners as in every archive here.
chart() {
    cp -R "charts/$1" "$work/charts/"
    if [ "$1" = gatera ]; then
        sed -i.before -e "s|^  repository: gatera$|  repository: ${GATERA_IMAGE_REPOSITORY:-gatera}|" \
            -e "s|^  digest: \"\"$|  digest: \"${GATERA_IMAGE_DIGEST:-}\"|" "$work/charts/gatera/values.yaml"
        rm "$work/charts/gatera/values.yaml.before"
    fi
    if [ "${GATERA_REPOSITORY:-}" ]; then
        # Relative links lead to files of this tree that the package does not have.
        printf 'home: %s\nsources: [%s]\n' "$GATERA_REPOSITORY" "$GATERA_REPOSITORY" >>"$work/charts/$1/Chart.yaml"
        pages=$GATERA_REPOSITORY/blob/v$version
        sed -i.before -e "s|](\.\./\.\./|]($pages/|g" -e "s|](\.\./|]($pages/charts/|g" "$work/charts/$1/README.md"
        rm "$work/charts/$1/README.md.before"
    fi
    mkdir "$work/$1"
    "$helm" package "$work/charts/$1" --destination "$work/$1" >/dev/null
    "$tar" --extract --gzip --directory="$work/$1" --file="$(echo "$work/$1"/*.tgz)"
    pack "$work/$1" "$1" >"$folder/$(basename "$work/$1"/*.tgz)"
}

install_yaml() {
    printf '# Gatera %s in namespace gatera, as its chart renders it with its default values.\n---\n' "$version"
    printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: gatera\n'
    "$helm" template gatera "$work/charts/gatera" --namespace gatera --include-crds --skip-tests
}

# usage: krew_platform OS ARCHITECTURE TARGET [PROGRAM]; prints nothing if the folder has no archive for TARGET.
krew_platform() {
    name=gatera-$version-$3.tar.gz
    [ -f "$folder/$name" ] || return 0
    cat <<END
  - selector:
      matchLabels: {os: $1, arch: $2}
    uri: $GATERA_REPOSITORY/releases/download/v$version/$name
    sha256: $(sha256sum "$folder/$name" | cut -c 1-64)
    bin: ${4:-gatera}
    files:
      - {from: "*/${4:-gatera}", to: .}
      - {from: "*/LICENSE", to: .}
END
}

krew() {
    cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: gatera
spec:
  version: v$version
  homepage: $GATERA_REPOSITORY
  shortDescription: Look after MariaDB Galera clusters
  description: |
    Shows the state of MariaDB Galera clusters, judges manifests by the rules of the admission webhook gatera, and stops, starts
    and recovers clusters without loss of data.
  platforms:
END
    krew_platform linux amd64 x86_64-unknown-linux-gnu
    krew_platform linux arm64 aarch64-unknown-linux-gnu
    krew_platform darwin amd64 x86_64-apple-darwin
    krew_platform darwin arm64 aarch64-apple-darwin
    krew_platform windows amd64 x86_64-pc-windows-msvc gatera.exe
}

common() {
    helm=${HELM:-$(tests/lab/tools/build.sh helm)/helm}
    mkdir "$work/charts"
    for name in gatera galera wordpress; do chart "$name"; done
    install_yaml >"$folder/install.yaml"
    tests/lab/tools/crate.sh cargo-cyclonedx cyclonedx --quiet --format json --spec-version 1.5 --override-filename gatera.cdx
    mv gatera.cdx.json "$folder/gatera-$version.cdx.json"
    [ -z "${GATERA_REPOSITORY:-}" ] || krew >"$folder/gatera.yaml"
    rm -f "$folder/SHA256SUMS"
    (cd "$folder" && sha256sum -- * >"$work/SHA256SUMS")
    mv "$work/SHA256SUMS" "$folder/"
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "$folder/.making.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
case ${1:-} in
platform | common) "$1" ;;
*)
    say "usage: $0 platform|common [FOLDER]"
    exit 2 ;;
esac

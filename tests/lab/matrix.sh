#!/bin/sh
# Runs the tests with every version of Kubernetes, Helm and MariaDB, one after the other, and prints a table of the results.
# Tests that use a control plane or Helm run with every pinned version of it, and those on real nodes with every series of
# MariaDB for which there is an image.
#
# usage: matrix.sh     writes target/matrix-KUBERNETES-HELM.log and target/matrix-mariadb-SERIES-MODULE.log
#
# GATERA_MATRIX='1.30/4 1.36/3 mariadb/11.8' runs these rows only. Rows of MariaDB need root, and 11.4 needs mvn.
# GATERA_MODULES='seed recover rolling'      are the modules of tests/e2e that run with each MariaDB.
# Exit status: 1 if a row failed; the others still run.
set -eu
unset CDPATH
cd "$(dirname "$0")/../.."

# Tests that use neither a control plane nor Helm: their result is the same in every row, and `make test` runs them.
INDEPENDENT='anything:: cases::every cases::no_rule cases::rules cases::ways cli:: docs:: house:: identity:: inject:: incremental_looks:: webhook_port:: recover:: router:: script:: secrets:: sim:: status::'
# Tests that run Helm.
HELM='helm:: chart_galera:: chart_gatera:: monitoring:: cluster::'

tests_of() {
    case $1 in
    */3) for filter in $HELM; do printf '%s ' "$filter"; done ;;
    *) for module in $INDEPENDENT; do printf '%s ' "--skip=$module"; done ;;
    esac
}

versions() {
    folder=$(tests/lab/tools/build.sh etcd kube-apiserver kube-controller-manager kubectl helm kwok kube-scheduler)
    printf '%s, Helm %s, %s' "$("$folder/kube-apiserver" --version)" "$("$folder/helm" version --short)" \
        "$("$folder/etcd" --version | sed -n 's/ Version: / /p')"
}

# Runs the tests with the versions of one row: KUBERNETES/HELM.
run_with_control_plane() {
    export GATERA_KUBERNETES="${1%/*}" GATERA_HELM="${1#*/}"
    with=$(versions)
    log=target/matrix-$GATERA_KUBERNETES-$GATERA_HELM.log
    printf '== %s (%s)\n' "$with" "$log"
    # shellcheck disable=SC2046 # several filters
    "${CARGO:-cargo}" test --test gatera -- $(tests_of "$1") >"$log" 2>&1 || {
        failed=1
        sed -n '/^failures:$/,$p' "$log"
    }
    table="$table$with: $(grep '^test result: ' "$log" || echo 'did not run')
"
    unset GATERA_KUBERNETES GATERA_HELM
}

# The release of MariaDB in the image of a series; the series itself if there is no image.
release_of() {
    if folder=$(tests/e2e/images/build.sh 2>/dev/null); then
        tar --extract --to-stdout --file="$folder/mariadb.tar" manifest.json | sed 's/.*library\/mariadb:\([0-9.]*\)".*/\1/'
    else
        echo "$1"
    fi
}

# Runs the tests with a series of MariaDB, in pods on real nodes and in a lab for each module: a cluster forms and survives a
# power failure and full copies (seed), is recovered when it is down (recover), and gets new options one member at a time
# (rolling).
run_with_mariadb() {
    export GATERA_MARIADB="$1"
    for module in ${GATERA_MODULES:-seed recover rolling}; do
        log=target/matrix-mariadb-$1-$module.log
        printf '== MariaDB %s, %s (%s)\n' "$1" "$module" "$log"
        started=$(date +%s)
        { make --no-print-directory gatera-image && make --no-print-directory "e2e-$module"; } >"$log" 2>&1 || {
            failed=1
            sed -n '/^failures:$/,$p' "$log"
        }
        ended=$(grep '^test result: ' "$log" || echo 'did not run')
        table="${table}MariaDB $(release_of "$1"), $module in $(($(date +%s) - started)) s: $ended
"
    done
    unset GATERA_MARIADB
}

table=
failed=0
mkdir -p target
for row in ${GATERA_MATRIX:-1.30/4 1.33/4 1.36/4 1.36/3 mariadb/10.11 mariadb/11.4 mariadb/11.8}; do
    case $row in
    mariadb/*) run_with_mariadb "${row#*/}" ;;
    *) run_with_control_plane "$row" ;;
    esac
done
printf '\n%s' "$table"
exit "$failed"

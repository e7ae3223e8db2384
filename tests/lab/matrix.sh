#!/bin/sh
# Runs the tests that meet a control plane or a release of Helm with every version that is pinned for it, one after the
# other, and prints a table of what ran: the versions that the programs tell, and the closing line of the tests.
#
# usage: matrix.sh     writes target/matrix-KUBERNETES-HELM.log
#
# GATERA_MATRIX='1.30/4 1.36/3' runs these rows only.
# Exit status: 1 a row failed; the others are run all the same.
set -eu
unset CDPATH
cd "$(dirname "$0")/../.."

# Tests that meet neither: they give the same answer in every row, and `make test` runs them.
ALONE='anything:: cases::every cases::no_rule cases::rules cases::ways cli:: docs:: house:: identity:: inject:: incremental_looks:: webhook_port:: recover:: router:: script:: secrets:: sim:: status::'
# Those in which Helm does something.
HELM='helm:: chart_galera:: chart_gatera:: monitoring:: cluster::'

tests_of() {
    case $1 in
    */3) for filter in $HELM; do printf '%s ' "$filter"; done ;;
    *) for module in $ALONE; do printf '%s ' "--skip=$module"; done ;;
    esac
}

versions() {
    folder=$(tests/lab/tools/build.sh etcd kube-apiserver kube-controller-manager kubectl helm kwok kube-scheduler)
    printf '%s, Helm %s, %s' "$("$folder/kube-apiserver" --version)" "$("$folder/helm" version --short)" \
        "$("$folder/etcd" --version | sed -n 's/ Version: / /p')"
}

table=
failed=0
for row in ${GATERA_MATRIX:-1.30/4 1.33/4 1.36/4 1.36/3}; do
    export GATERA_KUBERNETES="${row%/*}" GATERA_HELM="${row#*/}"
    with=$(versions)
    log=target/matrix-$GATERA_KUBERNETES-$GATERA_HELM.log
    printf '== %s (%s)\n' "$with" "$log"
    # shellcheck disable=SC2046 # several filters
    "${CARGO:-cargo}" test --test gatera -- $(tests_of "$row") >"$log" 2>&1 || {
        failed=1
        sed -n '/^failures:$/,$p' "$log"
    }
    table="$table$with: $(grep '^test result: ' "$log" || echo 'did not run')
"
done
printf '\n%s' "$table"
exit "$failed"

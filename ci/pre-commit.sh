#!/bin/sh
# The hook for pre-commit, which runs in the checkout that pre-commit makes of this repository: gatera check. The program need not
# be installed before.
set -eu
program=$("$(dirname "$0")/get.sh")
exec "$program" check --allow-empty --against git:HEAD "$@"

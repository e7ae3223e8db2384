#!/bin/sh
# The hook of pre-commit, in the checkout that pre-commit makes of this repository: gatera check, with a program that need not be
# installed.
set -eu
program=$("$(dirname "$0")/get.sh")
exec "$program" check --allow-empty --against git:HEAD "$@"

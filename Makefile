# The commands of this project. `make help` lists them.

CARGO ?= cargo
# Cargo uses colours only on a terminal.
export CARGO_TERM_COLOR ?= auto
# Versions in the lab, if not the usual ones: tests/lab/tools/build.sh and tests/e2e/images/build.sh read these variables.
export GATERA_KUBERNETES ?= $(KUBERNETES)
export GATERA_HELM ?= $(HELM)
export GATERA_MARIADB ?= $(MARIADB)

.PHONY: help demo test matrix sim e2e drills lab pages lint bench profile image release clean tools gatera-image
.DEFAULT_GOAL := help

help: ## list the commands
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## watch a real API server refuse the commands that destroy a Galera cluster (KEEP=1 keeps it running)
	@tests/lab/tools/build.sh >/dev/null & $(CARGO) build --quiet --bin gatera --example demo; built=$$?; wait $$! && exit $$built
	@KEEP="$(KEEP)" target/debug/examples/demo

test: tools ## run all tests, against a real control plane (KUBERNETES=1.33, HELM=3: another version that is pinned in tests/lab/tools)
	$(CARGO) test

matrix: ## run the tests with Kubernetes 1.30, 1.33 and 1.36, with Helm 3, and on real nodes with each MariaDB (hours; not in CI)
	@tests/lab/matrix.sh

# `make test` runs the same searches for some seconds.
sim: ## run deep searches: simulated clusters, users and faults, with events of watches, replicas and members in any order (an hour)
	GATERA_SIM_STEPS=$${GATERA_SIM_STEPS:-3000000} GATERA_RECOVER_DEPTH=$${GATERA_RECOVER_DEPTH:-7} GATERA_ANYTHING=40 GATERA_START_LIVES=80 \
	$(CARGO) test --profile search --test gatera -- --nocapture sim::no_seed_breaks_a_law recover::search anything:: inject::injection check::odd::any_text secrets::no_secret script::lives
	GATERA_SEARCH_RUNS=$${GATERA_SEARCH_RUNS:-100000} GATERA_WATCH_CASES=$${GATERA_WATCH_CASES:-300000} \
	$(CARGO) test --profile search --lib -- --nocapture reserve::search watch::keeper::search
	GATERA_CRASHES=all GATERA_HARMS=all GATERA_ROUNDS=$${GATERA_ROUNDS:-20} $(CARGO) test --test gatera -- crash:: live::the_next_leader heals:: reservations::simultaneous
	GATERA_HOSTILE=2000 $(CARGO) test --profile search --test gatera -- --nocapture hostile::lists

# Tests that install the guard in their own way, or not at all, or cordon all nodes, have a lab of their own; the others share one.
# Only one lab runs at a time, with one Galera cluster: with more, two cores would be too slow for the time limits.
ALONE = recover seed guard_life
# Tests that take long and run as drills; the UNGUARDED ones begin without the guard, each in a lab of its own.
UNGUARDED = unguarded from_before
DRILLS = drills race driven day flux argo_cd scarce bitnami figures passwd rolling orphaned outage volumes hangs held foreign odd odd_ends restricted tls metrics wordpress kudo upgrade healthcheck weather
E2E = CARGO_TARGET_$(HOST_ENV)_RUNNER=tests/lab/machines/enter.sh $(CARGO) test --test e2e --

e2e: gatera-image ## test real MariaDB Galera in real pods on three real nodes, under the guard (root, Linux)
	$(E2E) --list >/dev/null
	@$(MAKE) --no-print-directory --jobs=1 --keep-going $(ALONE:%=e2e-%) e2e-shared

e2e-shared:
	$(E2E) --nocapture --test-threads=1 --skip lab:: $(DRILLS:%=--skip %::) $(ALONE:%=--skip %::) $(UNGUARDED:%=--skip %::)

# Every node has the image of one series of MariaDB; these are the other series.
OTHERS = $(filter-out $(or $(GATERA_MARIADB),10.11),10.11 11.4 11.8)
WITH_OTHERS = others=$$(for series in $(OTHERS); do folder=$$(GATERA_MARIADB=$$series tests/e2e/images/build.sh mariadb) || exit; \
	echo $$folder/mariadb.tar; done) && GATERA_MARIADB_IMAGES="$$others"

e2e-upgrade:
	$(WITH_OTHERS) $(E2E) --nocapture --test-threads=1 upgrade::

# The nodes have no access to the internet, so what they run is built first.
WITH_ENGINES = { command -v redis-server >/dev/null || { echo "Argo CD needs redis-server: apt-get install redis-server" >&2; exit 1; }; } && \
	tests/lab/tools/build.sh argocd helm-controller kustomize-controller source-controller >/dev/null &&
e2e-flux e2e-argo_cd:
	$(WITH_ENGINES) $(E2E) --nocapture --test-threads=1 $(@:e2e-%=%)::

e2e-bitnami e2e-figures:
	images=$$(tests/e2e/images/build.sh bitnami)/more && \
	GATERA_BITNAMI_IMAGE=$${GATERA_BITNAMI_IMAGE:-$$images/bitnami.tar} $(E2E) --nocapture --test-threads=1 $(@:e2e-%=%)::

e2e-metrics:
	images=$$(tests/e2e/images/build.sh exporter)/more && tests/lab/tools/build.sh prometheus >/dev/null && GATERA_EXPORTER_IMAGE=$$images/exporter.tar $(E2E) --nocapture --test-threads=1 metrics::

# With GATERA_MARIADB_OPERATOR, a checkout of its repository, the real operator drives the cluster.
e2e-driven:
	image=$${GATERA_MARIADB_OPERATOR:+$$(tests/e2e/images/build.sh operator)/more/operator.tar} && \
	GATERA_MARIADB_OPERATOR_IMAGE=$$image $(E2E) --nocapture --test-threads=1 driven::

e2e-%:
	$(E2E) --nocapture --test-threads=1 $*::

drills: gatera-image ## test every kind of power failure and outage during writes; upgrades; Flux, Argo CD; Bitnami; WordPress in a browser; KUDO (root, Linux, mvn, redis; MARIADB=11.8)
	$(WITH_ENGINES) tests/lab/tools/build.sh prometheus >/dev/null && images=$$(tests/e2e/images/build.sh bitnami wordpress browser kudo exporter)/more && \
	$(WITH_OTHERS) GATERA_BITNAMI_IMAGE=$${GATERA_BITNAMI_IMAGE:-$$images/bitnami.tar} \
	GATERA_WORDPRESS_IMAGE=$$images/wordpress.tar GATERA_BROWSER_IMAGE=$$images/browser.tar GATERA_KUDO_IMAGE=$$images/kudo.tar GATERA_EXPORTER_IMAGE=$$images/exporter.tar \
	$(E2E) --nocapture --test-threads=1 $(DRILLS:%=%::)
	@$(MAKE) --no-print-directory --jobs=1 --keep-going $(UNGUARDED:%=e2e-%)

lab: gatera-image ## open a shell in a cluster with three real nodes (root, Linux; RUN='…' runs that command instead)
	@$(CARGO) build --quiet --example lab
	@echo "starting three nodes; the first time, Kubernetes and the images are built before that (a quarter of an hour)" >&2
	@GATERA_IMAGE=$(GATERA_IMAGE) GATERA_FOLDER=$(CURDIR)/$(dir $(STATIC)) RUN="$$RUN" tests/lab/machines/enter.sh target/debug/examples/lab

pages: ## write what is derived from the rules: pages, tables of the docs, values and rights of the chart, snapshots of cases
	WRITE_PAGES=1 INSTA_UPDATE=always $(CARGO) test --test gatera -- derived:: screen:: cases::every cases::ways cases::real

lint: ## check formatting, clippy with warnings denied, documentation, scripts, YAML, Markdown, spelling, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets -- --deny warnings
	$(CARGO) clippy --test e2e -- --deny warnings
	$(CARGO) check --quiet --bin gatera
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --no-deps --quiet
	@if command -v shellcheck >/dev/null; then shellcheck --shell=sh src/engine/inject/*.sh src/command/passwd/*.sh charts/galera/files/*.sh ci/*.sh tests/lab/*.sh tests/lab/tools/*.sh tests/lab/machines/*.sh \
	&& shellcheck --shell=bash src/engine/inject/*.bash && shellcheck --external-sources tests/e2e/images/*.sh tests/e2e/images/bitnami/*.sh tests/e2e/images/bitnami/ini-file; \
	else echo "shellcheck is not installed: scripts were not checked"; fi
	@if command -v yamllint >/dev/null; then yamllint --strict --config-data '{extends: relaxed, rules: {line-length: disable}}' \
	$$(git ls-files '*.yaml' '*.yml' | grep -v -e /templates/ -e ^tests/cases/ -e ^tests/fixtures/); else echo "yamllint is not installed: YAML was not checked"; fi
	@if command -v npm >/dev/null; then npm exec --yes --prefer-offline -- markdownlint-cli2@0.22.1 --config ci/.markdownlint.yaml $$(git ls-files '*.md') >/dev/null; \
	else echo "npm is not installed: Markdown was not checked"; fi
	@if command -v checkov >/dev/null; then folder=$$(mktemp -d) && helm=$$(tests/lab/tools/build.sh helm)/helm && for chart in galera gatera wordpress; do \
	$$helm template shop charts/$$chart --namespace db >$$folder/$$chart.yaml || exit; done; \
	checkov --config-file ci/.checkov.yaml --directory $$folder; status=$$?; rm -rf $$folder; exit $$status; \
	else echo "checkov is not installed: charts were not scanned"; fi
	@tests/lab/tools/crate.sh typos --format brief
	@tests/lab/tools/crate.sh cargo-deny --locked --log-level error check --hide-inclusion-graph licenses bans sources
	@$$(tests/lab/tools/build.sh actionlint)/actionlint

# The profile of releases, unless PROFILE names another.
PROFILE ?= release
BENCH = RUSTFLAGS="$(STATICALLY)" $(CARGO) bench --profile $(PROFILE:release=bench) --target $(HOST) --bench guard
bench: ## measure throughput, latency, CPU and memory against a server that does nothing; writes bench.json (TRY=1: only check that it runs)
	$(BENCH) $(if $(TRY),-- --test)

profile: ## count the instructions of each decision, by kind of request and phase, and of whole servers; keep the profiles (valgrind)
	KEEP=1 $(BENCH) -- instructions

tools: # builds these programs once, in some minutes, and keeps them outside the tree; promtool and kube-score take a minute or more each
	@tests/lab/tools/build.sh etcd kube-apiserver kube-controller-manager kubectl helm kwok kube-scheduler >/dev/null
	@tests/lab/tools/build.sh promtool >/dev/null
	@tests/lab/tools/build.sh kube-score >/dev/null

# The guard's image contains only the static program, like that of the Dockerfile.
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
HOST_ENV := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p' | tr a-z- A-Z_)
STATICALLY = -C target-feature=+crt-static
STATIC = target/$(HOST)/$(PROFILE:dev=debug)/gatera
export GATERA_IMAGE = $(CURDIR)/target/gatera-image.tar

# The build of the e2e tests builds the program, too; a separate build would compile everything again.
GUARD = $(if $(filter dev,$(PROFILE)),test --no-run --test e2e,build --bin gatera --profile $(PROFILE))

gatera-image:
	@tests/lab/machines/enter.sh --check
	@$(MAKE) --no-print-directory image

image: ## build the guard's image, without a container engine: target/gatera-image.tar, for `docker load` or `ctr images import`
	@echo "building the guard's image (some minutes, the first time)" >&2
	@RUSTFLAGS="$(STATICALLY)" $(CARGO) $(GUARD) --quiet --target $(HOST)
	@tests/e2e/images/gatera.sh $(STATIC) $(GATERA_IMAGE)

release: ## build the files of a release for this platform, the same from the same commit: target/release-VERSION
	ci/release.sh platform
	ci/release.sh common

clean: ## remove build results (the built tools stay in their cache)
	$(CARGO) clean

# Everything a newcomer types. `make help` lists it.

CARGO ?= cargo
# Processes of ours never wait for a terminal.
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test lint bench clean tools
.DEFAULT_GOAL := help

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: tools ## watch a real API server refuse the commands that destroy a Galera cluster (KEEP=1 keeps it running)
	@$(CARGO) build --quiet --bin gatera --example demo
	@KEEP="$(KEEP)" target/debug/examples/demo

test: tools ## all tests, against a real control plane
	$(CARGO) test

lint: ## formatting, clippy with warnings denied, documentation
	@# Modules that a macro declares are hidden from cargo fmt, so every file is named.
	find src tests -name '*.rs' -exec rustfmt --check --edition 2024 {} +
	$(CARGO) clippy --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --no-deps --quiet
	@if command -v shellcheck >/dev/null; then shellcheck --shell=sh src/inject/wait-for-sync.sh tests/lab/supervise.sh tests/lab/tools/build.sh \
	&& shellcheck tests/e2e/images/*.sh; \
	else echo "shellcheck is not installed: scripts were not checked"; fi

bench: ## throughput, latency, CPU and memory beside a server that does nothing; writes bench.json
	$(CARGO) bench --bench guard

tools: # built once, some minutes, and kept outside the tree; the last three take half a minute of it
	@tests/lab/tools/build.sh etcd kube-apiserver kube-controller-manager kubectl helm kwok kube-scheduler >/dev/null

clean: ## remove what was built here (the built tools stay in their cache)
	$(CARGO) clean

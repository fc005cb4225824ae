# Interflow's commands. `make` alone lists them; each target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# Cargo's target directory; CARGO_TARGET_DIR overrides it.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
INTERFLOW := $(TARGET_DIR)/release/interflow
# Arguments for `interflow run`: make run ARGS="--listen-proxy 127.0.0.1:8080 --no-record"
ARGS ?=
# Features of the binary: make run FEATURES=impersonate
FEATURES ?=
FEATURE_FLAGS := $(if $(FEATURES),--features $(FEATURES))
# Seconds per target of `make fuzz`.
FUZZ_SECONDS ?= 30

# Where a build with `impersonate` finds BoringSSL.
BORINGSSL := $(abspath $(TARGET_DIR))/boringssl/src
WITH_BORINGSSL := BORING_BSSL_SOURCE_PATH=$(BORINGSSL) BORING_BSSL_ASSUME_PATCHED=1
PREPARE := $(if $(findstring impersonate,$(FEATURES)),scripts/boringssl $(BORINGSSL),true)
CARGO_ENV := $(if $(findstring impersonate,$(FEATURES)),$(WITH_BORINGSSL))

# Targets of one folder are defined in that folder.
include $(wildcard bench/*.mk ui/*.mk tests/*.mk tests/*/*.mk)
# Black-box suites (conformance, clients, suites): `make NAME` runs tests/NAME/run, an executable that builds what it
# needs and fails unless all cases pass or are listed in its exclusions.
OUTSIDE := $(patsubst tests/%/run,%,$(wildcard tests/*/run))

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'
	@for name in $(OUTSIDE); do printf '  make %-14s %s\n' $$name "$$(sed -n '2s/^# *//p' tests/$$name/run)"; done

.PHONY: run
run: ## Build Interflow and start it with embedded defaults (ARGS="..." is passed on; FEATURES=impersonate adds fingerprints)
	@scripts/setup build
	@scripts/ui build
	@$(PREPARE)
	@scripts/say "building Interflow: some 410 crates, with TLS, SQLite and Lua in C; about 10 minutes on 2 cores the first time, seconds later"
	@$(CARGO_ENV) $(CARGO) build --locked --release -p interflow $(FEATURE_FLAGS)
	@scripts/say "starting $(INTERFLOW) run $(ARGS)"
	@exec $(INTERFLOW) run $(ARGS)

.PHONY: build
build: ## Build the release binary (FEATURES=impersonate adds other clients' fingerprints)
	@scripts/setup build
	@scripts/ui build
	@$(PREPARE)
	@$(CARGO_ENV) $(CARGO) build --locked --release -p interflow $(FEATURE_FLAGS)

.PHONY: test
test: ## Everything that must pass before a change lands: format, lints, tests, architecture rules, docs, deploy files
	@scripts/setup test
	@scripts/test

.PHONY: check
check: ## The quick part of `make test`: format, lints, architecture rules
	@scripts/setup build
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@$(CARGO) test --locked -p interflow --test architecture

.PHONY: fmt
fmt: ## Format all code
	@$(CARGO) fmt --all

.PHONY: fleet
fleet: ## Start two replicas behind HAProxy with PostgreSQL, Redis and an S3 server on this machine (ARGS=status, ARGS=stop)
	@$(if $(ARGS),,scripts/setup test && scripts/ui build && $(CARGO) build --locked --release -p interflow)
	@scripts/fleet $(or $(ARGS),start)

.PHONY: docs
docs: ## Generate what is made from the code: the pages of docs/reference, docs/reference/openapi.json, the UI's types of the API
	@said=$$(UPDATE_DOCS=1 $(CARGO) test --locked -q -p interflow --lib reference) || { echo "$$said"; exit 1; }
	@said=$$(UPDATE_DOCS=1 $(CARGO) test --locked -q -p interflow-query -p interflow-redact -p interflow-rules -p interflow-archive -p interflow-admin --test reference) || { echo "$$said"; exit 1; }
	@said=$$(UPDATE_DOCS=1 $(CARGO) test --locked -q -p interflow-compat --test fluxzy the_reference_page) || { echo "$$said"; exit 1; }
	@said=$$(UPDATE_DOCS=1 $(CARGO) test --locked -q -p interflow-admin --lib the_committed_) || { echo "$$said"; exit 1; }
	@said=$$(UPDATE_DOCS=1 $(CARGO) test --locked -q -p interflow --test metrics the_reference_page) || { echo "$$said"; exit 1; }
	@$(MAKE) --no-print-directory ui/node_modules/.package-lock.json && cd ui && npm run --silent api
	@scripts/say "the reference pages in docs/reference, docs/reference/openapi.json and ui/src/lib/api.gen.ts are written"

# mdBook renders docs/ as a book; installed once, in target/tools.
MDBOOK := $(TARGET_DIR)/tools/bin/mdbook

$(MDBOOK):
	@scripts/say "installing mdBook in $(TARGET_DIR)/tools; some minutes"
	@$(CARGO) install --locked --quiet --version 0.5.4 --root $(TARGET_DIR)/tools mdbook

.PHONY: docs-site docs-serve
docs-site: $(MDBOOK) ## Build the documentation as a book in target/book (installs mdBook in target/tools)
	@$(MDBOOK) build docs

docs-serve: $(MDBOOK) ## Serve the documentation at http://127.0.0.1:3000, rebuilt when a page changes
	@$(MDBOOK) serve docs --hostname 127.0.0.1 --port 3000

.PHONY: deploy-check
deploy-check: ## Check the files in deploy/ with the tools of this machine
	@scripts/deploy-check

.PHONY: build-times
build-times: ## Measure a cold release build, and write its table into CONTRIBUTING.md (10 minutes of a machine that does nothing else)
	@scripts/setup build
	@scripts/ui build
	@scripts/build-times

.PHONY: deny
deny: ## Check licences, sources, bans and advisories (installs cargo-deny, which takes some minutes)
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	@$(CARGO) deny --all-features check

.PHONY: fuzz
fuzz: ## Fuzz every parser of network input, FUZZ_SECONDS each (needs the nightly toolchain and cargo-fuzz)
	@scripts/fuzz $(FUZZ_SECONDS)

.PHONY: $(OUTSIDE)
$(OUTSIDE):
	@scripts/setup test
	@tests/$@/run $(ARGS)

.PHONY: clean
clean: ## Remove build output
	@$(CARGO) clean

.PHONY: release
release: ## Build all that people install in target/release-files: archives, packages, image, chart, npm, PyPI (scripts/release says how)
	@scripts/release

.PHONY: cross-check
cross-check: ## Check that Interflow compiles for Windows and macOS (mingw-w64; zig from PyPI)
	@scripts/cross-check

# Builds, tests and shows Stormlog. `make test` is what CI runs; `make help` lists the rest.
# Needs Rust, Python 3.11+, a C/C++ compiler and make; everything else is put into .venv, .venv-peer and .tools here.

PYTHON ?= python3
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
export CARGO_TARGET_DIR := $(TARGET)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

BIN := .venv/bin
PEER := .venv-peer/bin/python
PIP_INSTALL := -m pip install --quiet
# nextest where there is one; it runs everything but doctests.
TEST_RUST := $(shell cargo nextest --version >/dev/null 2>&1 && echo nextest run || echo test --lib --bins --tests)

RUST_FILES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)
PYTHON_FILES := pyproject.toml scripts/build_backend.py scripts/alias_stubs.py $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed)
PYTHON_DIRS := python tests bench examples fuzz scripts
# Workspaces of their own.
OTHER_CRATES := fuzz bench/programs

# Seconds of `make soak`; SOAK_TABLE=bench/SOAK.md keeps its table.
SOAK_SECONDS ?= 3600
SOAK_TABLE ?=

# One step after the other, so that what is printed can be read.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo setup peer build fmt lint test test-rust test-loom test-python test-install test-readme test-frameworks test-production test-vm browser fuzz-smoke bless bench soak corpus clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: setup ## record a program that is killed, and show what is left
	@$(BIN)/python examples/demo.py

setup: .venv/.package ## the package with its commands in .venv

.venv/.tools: scripts/requirements-dev.txt
	@echo "setup: tools into .venv"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP_INSTALL) -r scripts/requirements-dev.txt
	@touch $@

.venv/.package: .venv/.tools $(RUST_FILES) $(PYTHON_FILES)
	@echo "setup: the package into .venv (a first build takes some minutes)"
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --force-reinstall .
	@touch $@

peer: .venv-peer/.stamp ## the real stormlog 0.4.3 in .venv-peer, to compare with

.venv-peer/.stamp:
	@echo "setup: stormlog 0.4.3 into .venv-peer"
	$(PYTHON) -m venv .venv-peer
	$(PEER) $(PIP_INSTALL) stormlog==0.4.3
	@touch $@

build: ## the stormlog binary, in target/release
	cargo build --locked --release

fmt: .venv/.tools ## format everything
	cargo fmt --all
	@for crate in $(OTHER_CRATES); do (cd $$crate && cargo fmt) || exit; done
	$(BIN)/python scripts/alias_stubs.py
	$(BIN)/ruff format --quiet $(PYTHON_DIRS)
	$(BIN)/ruff check --quiet --fix $(PYTHON_DIRS)

lint: setup ## formats, clippy, ruff, mypy, the stubs
	@echo "lint: Rust"
	cargo fmt --all --check
	@for crate in $(OTHER_CRATES); do (cd $$crate && cargo fmt --check) || exit; done
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	@for crate in $(OTHER_CRATES); do cargo clippy --quiet --manifest-path $$crate/Cargo.toml -- -D warnings || exit; done
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level error check bans licenses sources; fi
	@echo "lint: Python"
	$(BIN)/ruff format --check --quiet $(PYTHON_DIRS)
	$(BIN)/ruff check --quiet $(PYTHON_DIRS)
	$(BIN)/mypy --no-error-summary
	$(BIN)/mypy --no-error-summary examples bench tests/readme
	$(BIN)/python -m mypy.stubtest --concise stormlog._native

test: lint fuzz-smoke test-install test-readme test-loom test-python test-rust ## everything
	@echo "test: everything passed"

test-rust: peer ## the Rust tests and doctests
	@echo "test-rust: doctests"
	cargo test --quiet --locked --workspace --doc
	@echo "test-rust: tests"
	STORMLOG_PEER_PYTHON="$(abspath $(PEER))" cargo $(TEST_RUST) --locked --workspace

test-loom: ## every interleaving of the ring's protocols
	@echo "test-loom: the model checker on crates/ring"
	CARGO_TARGET_DIR=$(TARGET)/loom RUSTFLAGS="--cfg loom" cargo test --quiet --locked --release -p stormlog-ring --test loom

test-python: setup peer browser ## the Python tests, against the real stormlog 0.4.3 where it matters
	@echo "test-python: tests/python"
	STORMLOG_PEER_PYTHON="$(abspath $(PEER))" $(BIN)/python -m pytest tests/python

browser: ## Debian's chromium for the tests of the pages, where it can be installed
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "browser: installing chromium"; \
	  { apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium >/dev/null; } \
	  || echo "browser: chromium could not be installed; the tests of the pages are left out"; fi

test-install: ## `pip install .` and `cargo install` on a machine without our tools
	@scripts/test-install "$(PYTHON)"

test-readme: setup ## the commands in README.md
	@echo "test-readme: README.md"
	@$(BIN)/python tests/readme/check.py README.md

test-frameworks: setup ## tests that need PyTorch or TensorFlow
	@if ls tests/frameworks/test_*.py >/dev/null 2>&1; then scripts/test-frameworks "$(PYTHON)"; \
	else echo "test-frameworks: there are no such tests yet"; fi

test-production: setup ## tests with the real Prometheus, SLURM, containers (root and apt-get the first time)
	@echo "test-production: tests/production"
	scripts/test-production "$(BIN)/python"

test-vm: setup ## the kernel's own OOM killer, in a virtual machine (QEMU; root and apt-get the first time)
	$(PYTHON) tests/vm/run.py $(abspath $(BIN)/stormlog) $(TARGET)/vm

fuzz-smoke: ## each fuzz target for a fixed number of inputs; FUZZ_SECONDS=300 explores
	@echo "fuzz-smoke: building the targets"
	@fuzz/smoke

bless: setup peer ## rewrite the golden files; look at the diff before you commit it
	STORMLOG_BLESS=1 cargo $(TEST_RUST) --locked --workspace
	STORMLOG_BLESS=1 STORMLOG_PEER_PYTHON="$(abspath $(PEER))" $(BIN)/python -m pytest tests/python

bench: setup peer ## measure beside stormlog 0.4.3, into bench/RESULTS.md
	bench/run

soak: setup ## short-lived processes under `run --heap` for an hour, held to the budget; SOAK_SECONDS=120 for a look
	$(PYTHON) bench/soak.py --stormlog $(abspath $(BIN)/stormlog) --seconds $(SOAK_SECONDS) $(if $(SOAK_TABLE),--markdown $(SOAK_TABLE))

corpus: setup ## record the programs of tests/corpus anew (those with PyTorch where .venv-frameworks-* has it)
	CORPUS_TORCH_PYTHON="$(abspath $(firstword $(wildcard .venv-frameworks-*/bin/python)))" $(BIN)/python tests/corpus/record.py

clean: ## remove everything that was built or installed here
	rm -rf .venv .venv-peer .tools dist bench/data fuzz/artifacts fuzz/corpus
	cargo clean

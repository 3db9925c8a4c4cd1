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

# Where `make test-frameworks` keeps the frameworks.
FRAMEWORKS := $(or $(STORMLOG_FRAMEWORKS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stormlog-frameworks)

# Seconds of `make soak`; SOAK_KEEP=1 writes its figures to bench/results.
SOAK_SECONDS ?= 3600
SOAK_KEEP ?=

# One step after the other, so that what is printed can be read.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo setup peer build docs docs-output docs-images fmt lint test test-rust test-loom test-python test-install test-readme test-frameworks test-production test-vm browser shells fuzz-smoke bless bench soak corpus clean

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
	$(BIN)/mypy --no-error-summary examples
	$(BIN)/mypy --no-error-summary bench tests/readme
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

test-python: setup peer browser shells ## the Python tests, against the real stormlog 0.4.3 where it matters
	@echo "test-python: tests/python tests/documents"
	STORMLOG_PEER_PYTHON="$(abspath $(PEER))" $(BIN)/python -m pytest tests/python tests/documents

# $(1): packages of Debian, $(2): a command of theirs, $(3): what is left out without them.
define debian
@if ! command -v $(2) >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  echo "installing $(1)"; \
  { apt-get -qq update && apt-get -qq install --yes --no-install-recommends $(1) >/dev/null; } \
  || echo "$(1) could not be installed; $(3) are left out"; fi
endef

browser: ## Debian's chromium for the tests of the pages, where it can be installed
	$(call debian,chromium,chromium,the tests of the pages)

shells: ## Debian's zsh and fish for the tests of completions, where they can be installed
	$(call debian,zsh,zsh,the tests of its completions)
	$(call debian,fish,fish,the tests of its completions)

test-install: ## `pip install .` and `cargo install` on a machine without our tools
	@scripts/test-install "$(PYTHON)"

test-readme: setup ## the commands in README.md and the guide
	@echo "test-readme: README.md docs/guide"
	@$(BIN)/python tests/readme/check.py README.md docs/guide/*.md

docs: ## the guide and the reference as a site, in target/book
	@scripts/docs $(TARGET)/book

docs-output: setup ## write what the commands of README.md and the guide print into them; look at the diff
	$(BIN)/python tests/readme/check.py --update README.md docs/guide/*.md

docs-images: setup browser ## draw the pictures of docs/images from real runs (root, a memory cgroup)
	$(BIN)/python scripts/docs_images.py

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
	$(BIN)/python scripts/python_reference.py
	STORMLOG_BLESS=1 cargo $(TEST_RUST) --locked --workspace
	$(BIN)/python scripts/docs_summary.py
	STORMLOG_BLESS=1 STORMLOG_PEER_PYTHON="$(abspath $(PEER))" $(BIN)/python -m pytest tests/python

bench: setup peer ## measure beside stormlog 0.4.3, into bench/RESULTS.md
	bench/run

soak: setup ## short-lived processes under `run --heap` for an hour, held to the budget; SOAK_SECONDS=120 for a look
	$(PYTHON) bench/soak.py --stormlog $(abspath $(BIN)/stormlog) --seconds $(SOAK_SECONDS) $(if $(SOAK_KEEP),--keep)

corpus: setup ## record the programs of tests/corpus again (those with PyTorch where `make test-frameworks` installed it)
	CORPUS_TORCH_PYTHON="$(firstword $(wildcard $(FRAMEWORKS)/.venv-frameworks-*/bin/python))" $(BIN)/python tests/corpus/record.py

clean: ## remove everything that was built or installed here
	rm -rf .venv .venv-peer .tools dist bench/data fuzz/artifacts fuzz/corpus
	cargo clean

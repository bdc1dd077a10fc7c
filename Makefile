# The one door: everything below sets up what it needs on a machine that has
# rustc, Python 3.11 or newer, and make.

.PHONY: help demo test test-all test-rust test-python results docs bench lint format lock clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first interpreter that is new enough and really runs (a shim may not).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)/.tools
WHEEL := $(VENV)/.wheel
SOURCES := $(shell find src python -name '*.rs' -o -name '*.py' -o -name '*.pyi' -o -name py.typed)

help:
	@echo "make demo      a protected and an unprotected service under three times their capacity"
	@echo "make test      lint, the Rust tests, and the Python tests against the built wheel"
	@echo "make test-all  the same with full counts, on every CPython that is found"
	@echo "make results   writes what comes of the load scenarios, after a change that is meant to change it"
	@echo "make docs      draws the figures of the documentation, and writes what its commands print"
	@echo "make bench     what it costs, beside what else one could use"
	@echo "make lint      the linters alone"
	@echo "make format    formats everything"
	@echo "make lock      updates the locked versions"

demo: $(WHEEL)
	$(BIN)/sluicegate demo

test: lint test-rust test-python

test-rust:
	cargo test --quiet

# From the tests' own directory, so that it is the installed wheel that is tested.
test-python: $(WHEEL)
	cd tests && ../$(BIN)/python -m pytest -c ../pyproject.toml --rootdir=.. -q .

test-all: lint $(WHEEL)
	SLUICEGATE_TEST_FULL=1 cargo test --quiet
	sh tests/every-python.sh

results:
	SLUICEGATE_WRITE_RESULTS=1 cargo test --quiet --test load

# All pages take some ten minutes, for the comparison; PAGES=docs/adaptive-limit.md takes one.
docs: $(WHEEL)
	$(BIN)/python docs/build.py $(PAGES)

bench: $(WHEEL)
	cargo bench --quiet
	cd benches && for bench in *.py; do ../$(BIN)/python $$bench || exit 1; done

lint: $(WHEEL)
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy --quiet --lib --features python -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest sluicegate._core

format: $(TOOLS)
	cargo fmt
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

lock: $(TOOLS)
	cargo update
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --group dev --no-header -o requirements/dev.txt

clean:
	rm -rf $(VENV) .venv-* dist target

$(TOOLS): requirements/dev.txt
	@test -n "$(PYTHON)" || { echo "sluicegate needs Python 3.11 or newer" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	touch $@

$(WHEEL): $(TOOLS) $(SOURCES) Cargo.toml Cargo.lock pyproject.toml README.md
	rm -rf dist
	$(BIN)/maturin build --quiet --release --locked --out dist --interpreter $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
	touch $@

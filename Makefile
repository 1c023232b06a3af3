# Two commands for a newcomer: `make demo` and `make test`. Everything is installed into .venv, nothing elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROCESSES = $$($(BIN)/python -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
STDLIB = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')

# Python keeps what it compiled, whoever asked it not to: tests start hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-quick lint format docs clean

demo: $(VENV)/.demo
	$(BIN)/gristmill build "$(STDLIB)" --out demo
	$(BIN)/gristmill check demo
	$(BIN)/gristmill report demo

# One process more than there are cores, as some tests wait for a browser, a server or a clock. Each takes one stretch of the
# tests, and helps others when it is done: few fixtures are made by two of them.
test: $(VENV)/.test
	PYTHONUTF8=1 $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal $(TEST_OPTIONS)

# What one runs while working: a minute, some of every package, no browser, Ray, training or S3.
test-quick: $(VENV)/.test
	PYTHONUTF8=1 $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal -m "not slow" $(TEST_OPTIONS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.test
	$(BIN)/python tools/write_reference.py

clean:
	rm -rf $(VENV) demo demo.work dist

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("gristmill needs Python 3.11 or later; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report]'
	touch $@

# Libraries that only tests run, and that cannot be in one environment with what trains here.
$(VENV)/.readers: tests/support/readers.txt | $(BIN)/python
	rm -rf $(VENV)/readers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/readers --requirement tests/support/readers.txt
	touch $@

# The tokenizers of some models. Tests with those that cannot be fetched are left out, and named.
$(VENV)/.tokenizers: tests/support/real_tokenizers.py | $(BIN)/python
	-$(BIN)/python tests/support/real_tokenizers.py $(VENV)/tokenizers && touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.readers $(VENV)/.tokenizers | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[tokenizers,variants,bench,test,lint]'
	touch $@ $(VENV)/.demo

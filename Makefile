# Start with `make demo` or `make test`. Both install everything into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROCESSES = $$($(BIN)/python -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
STDLIB = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')

# Keep compiled bytecode: tests start hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-quick lint format docs clean

demo: $(VENV)/.demo
	$(BIN)/gristmill build "$(STDLIB)" --out demo
	$(BIN)/gristmill check demo
	$(BIN)/gristmill report demo

# One process more than there are cores, because some tests wait for a browser, a server or a timer. Each process gets a contiguous
# block of tests and takes over others when it is done, so that few fixtures are created twice.
test: $(VENV)/.test
	PYTHONUTF8=1 $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal $(TEST_OPTIONS)

# For use while working. Takes about a minute: some tests of every package, without browser, Ray, training or S3.
test-quick: $(VENV)/.test
	PYTHONUTF8=1 $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal -m "not slow" $(TEST_OPTIONS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sentences.py

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

# Libraries that only tests use and that conflict with the training dependencies.
$(VENV)/.readers: tests/support/readers.txt | $(BIN)/python
	rm -rf $(VENV)/readers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/readers --requirement tests/support/readers.txt
	touch $@

# Tokenizers of published models. Tests whose tokenizer cannot be downloaded are skipped and listed.
$(VENV)/.tokenizers: tests/support/real_tokenizers.py | $(BIN)/python
	-$(BIN)/python tests/support/real_tokenizers.py $(VENV)/tokenizers && touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.readers $(VENV)/.tokenizers | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[tokenizers,variants,bench,test,lint]'
	touch $@ $(VENV)/.demo

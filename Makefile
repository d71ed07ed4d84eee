# make demo   the environment (.venv/) and the demonstration (runs/demo/)
# make check  the environment, then lint, types and the fast tests, in less than a minute
# make test   the environment, then lint, types and all tests
# make results   RESULTS.md, the tables in docs/ and README.md, and docs/figures/, from the files under results/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# As pip does, but on all cores. It may fail: some packages have files that this version of Python cannot read.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

.PHONY: demo check test results lint types fast unit slow format clean

demo: $(VENV)/.runtime
	$(BIN)/hoarfrost demo --out runs/demo

check: lint
	$(MAKE) --no-print-directory --jobs 2 types fast

test: lint
	$(MAKE) --no-print-directory --jobs 2 types unit

results: $(VENV)/.runtime
	$(BIN)/python -m tools.results page > RESULTS.md.new
	mv RESULTS.md.new RESULTS.md
	$(BIN)/python -m tools.results figures
	$(BIN)/python -m tools.results renew docs/reproducibility.md docs/hoarfrost.md docs/unsorted.md README.md

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/prose.py

types: $(VENV)/.dev
	$(BIN)/mypy

fast: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --fast

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# tests/slow.txt anew: one test at a time, on a machine with nothing else to do
slow: $(VENV)/.dev
	$(BIN)/pytest --measure

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	$(COMPILE)
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[dev]"
	$(COMPILE)
	touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) runs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

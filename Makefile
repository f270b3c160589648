# make demo   publish Adult end to end and say where the report is
# make test   linters, types, layers and the whole test suite
# make bench  the benchmarks in their quick size (BENCH=full for the long one)
# All rest on `make setup`, which makes .venv and, as root on Debian, installs the browser that the report tests use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH ?= quick

.PHONY: setup demo test lint bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt tools/system_packages.sh
	sh tools/system_packages.sh
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: setup
	$(BIN)/dither publish adult --epsilon 4 --population 1000000 --rows 45222 --seed 7 -o demo
	@echo "Open demo/report.html in a browser; the synthetic table is demo/synthetic.parquet."

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	$(BIN)/python -m benchmarks.mechanisms $(if $(filter full,$(BENCH)),,--quick)

clean:
	rm -rf $(VENV) demo bench-out .pytest_cache .mypy_cache .ruff_cache

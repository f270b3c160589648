# make demo   publish Adult end to end and say where the report is
# make demo-web  a collector with two example campaigns, until Ctrl-C
# make pictures  the screenshots in docs/pictures, made anew
# make check  the fast lane, under two minutes on two idle cores: linters, types, layers and the tests not marked slow
# make test   linters, types, layers and the whole test suite
# make docs   the documentation site into site/, without network: broken links, pages in no menu and notebooks that fail end it
# make bench  the mechanisms against other libraries, quick (BENCH=full for the long one); dither bench NAME for the others
# make soak   ten times as many kills of the collector under load
# All but the first rest on `make setup`, which makes .venv and, as root on Debian, installs the browser, PostgreSQL, Node.js and Java that
# some tests use; `make demo` installs what Dither itself needs and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH ?= quick

.PHONY: setup demo demo-web pictures check test lint docs bench soak clean

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

setup: $(VENV)/.ready

# The environment is made in two stages: what Dither itself needs, which is all of the demonstration, and what its tests need.
$(VENV)/.core: pyproject.toml constraints.txt tools/system_packages.sh
	sh tools/system_packages.sh python
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile -e .
	touch $@

$(VENV)/.ready: $(VENV)/.core
	sh tools/system_packages.sh
	$(PIP) -e ".[dev,docs,server,spark]"
	touch $@

demo: $(VENV)/.core
	@echo "The demonstration gives the seed 7, so that it shows the same figures everywhere, and lets each row play some 22 participants; Adult is a public table."
	$(BIN)/dither publish adult --epsilon 4 --population 1000000 --rows 45222 --seed 7 --overwrite -o demo
	@echo "Open demo/report.html in a browser; the synthetic table is demo/synthetic.parquet."

demo-web: setup
	@$(BIN)/python -m tools.demo_web

pictures: setup
	$(BIN)/python -m tools.screenshots docs/pictures

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint
	$(BIN)/python -m pytest -m "not slow"

test: lint
	$(BIN)/python -m pytest

docs: setup
	$(BIN)/python -m tools.site
	@echo "Open site/index.html, or with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

bench: setup
	$(PIP) -e ".[dev,server,bench]"
	$(BIN)/dither bench mechanisms $(if $(filter full,$(BENCH)),,--quick)

soak: setup
	DITHER_SOAK=1 $(BIN)/python -m pytest tests/crash

clean:
	rm -rf $(VENV) demo site bench-out .pytest_cache .mypy_cache .ruff_cache

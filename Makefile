# make demo   publish Adult end to end and say where the report is
# make demo-web  a collector with two example campaigns, until Ctrl-C
# make messages  extracts the texts of pages into src/dither/locale and says which are not translated
# make pages-check  pages of the demonstration by the Nu validator and Lighthouse, which npm fetches
# make pictures  the screenshots in docs/pictures, made anew
# make check  the fast lane, about two and a half minutes on two idle cores: linters, types, layers and the tests not marked slow
# make test   linters, types, layers and the whole test suite
# make docs   the documentation site into site/, without network: broken links, pages in no menu and notebooks that fail end it
# make bench  the mechanisms against other libraries, quick (BENCH=full for the long one); dither bench NAME for the others
# make soak   ten times as many kills of the collector under load
# make sbom   the components of a collector's environment as CycloneDX JSON, in build/sbom.json
# make lock   requirements/*.txt from pyproject.toml, with uv; UPGRADE=--upgrade for new versions
# All but the first rest on `make setup`, which makes .venv and, as root on Debian, installs the browser, PostgreSQL, nginx, gcc, Node.js and Java that
# some tests use; `make demo` installs what Dither itself needs and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH ?= quick

.PHONY: setup demo demo-web messages pages-check pictures check test pytest-check pytest-all lint docs bench soak sbom lock clean

PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Everything from a registry must have a hash that requirements/ lists. Without build isolation the
# tools that build source packages are those of requirements/build.txt, not fetched unchecked.
LOCKED := $(PIP) --require-hashes --no-build-isolation --use-pep517
LOCKS := $(addprefix requirements/,build.txt core.txt server.txt dev.txt bench.txt)

# Tests start the package in hundreds of processes; without cached bytecode each compiles it again.
unexport PYTHONDONTWRITEBYTECODE

setup: $(VENV)/.ready

# The environment is made in two stages: what Dither itself needs, which is all of the demonstration, and what its tests need.
$(VENV)/.core: pyproject.toml $(LOCKS) tools/system_packages.sh
	sh tools/system_packages.sh python
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) --no-compile -r requirements/build.txt -r requirements/core.txt
	$(PIP) --no-compile --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.ready: $(VENV)/.core
	sh tools/system_packages.sh
	$(LOCKED) $(addprefix -r ,$(filter-out %/bench.txt,$(LOCKS)))
	touch $@

demo: $(VENV)/.core
	$(BIN)/dither publish adult --epsilon 4 --without-truth --overwrite -o demo
	@echo "Open demo/report.html in a browser; the synthetic table is demo/synthetic.parquet. Both may be shared."

demo-web: setup
	@$(BIN)/python -m tools.demo_web

pictures: setup
	$(BIN)/python -m tools.screenshots docs/pictures

pages-check: setup
	$(BIN)/python -m tools.pages_check

messages: setup
	$(BIN)/python -m tools.messages

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The linters and types keep one core busy, so they run beside the tests.
check: setup
	+$(MAKE) --no-print-directory --jobs=2 lint pytest-check

test: setup
	+$(MAKE) --no-print-directory --jobs=2 lint pytest-all

# Tests of servers wait, the slow ones for time-outs, databases and browsers as well: more workers
# than the two cores overlap that.
pytest-check: setup
	$(BIN)/python -m pytest -m "not slow" -n 3

pytest-all: setup
	$(BIN)/python -m pytest -n 4

docs: setup
	$(BIN)/python -m tools.site
	@echo "Open site/index.html, or with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

bench: setup
	$(LOCKED) $(addprefix -r ,$(LOCKS))
	$(BIN)/dither bench mechanisms $(if $(filter full,$(BENCH)),,--quick)

soak: setup
	DITHER_SOAK=1 $(BIN)/python -m pytest tests/crash

# An environment of its own, as deploy/Containerfile makes it: .venv has the tests' packages too.
sbom: setup
	rm -rf build/runtime build/wheel
	$(PYTHON) -m venv --without-pip build/runtime
	$(BIN)/python -m pip --python build/runtime --disable-pip-version-check install --quiet --require-hashes \
	  --only-binary :all: -r requirements/core.txt -r requirements/server.txt
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w build/wheel .
	$(BIN)/python -m pip --python build/runtime install --quiet --no-deps --no-index build/wheel/*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json build/runtime

# Each file lists what its extras add to the files before it. A requirement with a marker is repeated,
# because another extra may need the package where the marker is false.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
  --no-header $(UPGRADE)
EMITTED = $(addprefix -c ,$(1)) $$(sed -n 's,^\([a-z0-9.-]*\)==[^;]*$$,--no-emit-package \1,p' $(1))
lock:
	cd requirements && $(COMPILE) ../pyproject.toml -o core.txt
	cd requirements && $(COMPILE) ../pyproject.toml --extra server $(call EMITTED,core.txt) -o server.txt
	cd requirements && printf 'editables>=0.5\nhatchling>=1.25\nsetuptools>=77\n' | $(COMPILE) -c core.txt -c server.txt -o build.txt -
	cd requirements && $(COMPILE) ../pyproject.toml --extra server --extra dev --extra docs --extra spark --extra stats \
	  $(call EMITTED,core.txt server.txt build.txt) -o dev.txt
	cd requirements && $(COMPILE) ../pyproject.toml --all-extras \
	  $(call EMITTED,core.txt server.txt build.txt dev.txt) -o bench.txt

clean:
	rm -rf $(VENV) demo site bench-out .pytest_cache .mypy_cache .ruff_cache

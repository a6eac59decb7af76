# `make serve` and `make test` set up everything; they need only make and Python 3.11 or later.
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 3
HOST    ?= 127.0.0.1
PORT    ?= 8000
DEVICE  ?= cpu
STORE   ?=
DATA    ?=

BIN       := $(VENV)/bin
SERVING   := $(VENV)/.serving
DEVELOPING := $(VENV)/.developing
INSTALL   := PYTHON="$(PYTHON)" scripts/install.sh $(VENV)
SOURCES   := pyproject.toml constraints.txt requirements.txt $(wildcard setup.py prime_anc/core/c/*)

# Where `make programs` puts nginx and Prometheus for the tests of deploy/, a Chromium for the page's, and the sanitizers'
# libraries for the core's.
PROGRAMS  := $(abspath $(VENV))/programs
WITH_PROGRAMS := PATH="$(abspath $(BIN)):$(PROGRAMS)/usr/bin:$(PROGRAMS)/usr/sbin:$$PATH"

# Tests start many processes, which would otherwise all compile the modules that they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help test lint unit results serve programs generators format clean

help:
	@echo "make serve     start the service and design the example listener's filter (PORT=8000 DEVICE=cpu)"
	@echo "make test      check style, types and imports, then run every test"
	@echo "make results   recompute docs/results.md from measured data, in days (DATA=folder); stopped, it goes on"
	@echo "make programs  fetch nginx, Prometheus, Chromium and sanitizers, so that make test also tests deploy/, the page and the core"
	@echo "make generators  install generators of clients, so that make test also calls what they generate"
	@echo "make format    reformat the sources"
	@echo "make clean     remove the environment and the tools' caches"

serve: $(SERVING)
	@$(BIN)/python scripts/serve.py --host $(HOST) --port $(PORT) --device $(DEVICE) $(if $(STORE),--store $(STORE))

test: $(DEVELOPING)
	@$(MAKE) -j2 lint unit

lint: $(DEVELOPING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One thread per process: several do not help on small arrays. Three workers on two cores, because tests wait for
# services that they have started. worksteal keeps the tests of a file, and so their fixtures, mostly on one worker.
unit: $(DEVELOPING)
	$(WITH_PROGRAMS) OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal

results: $(DEVELOPING)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.results --workers $(WORKERS) --data $(DATA)

programs: $(DEVELOPING)
	deploy/fetch_programs.sh $(PROGRAMS)

generators: $(DEVELOPING)
	PYTHON="$(PYTHON)" scripts/fetch_generators.sh .generators

format: $(DEVELOPING)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .generators .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# Requirements for serving on a CPU; an environment with the developers' tools serves too.
$(SERVING): $(SOURCES)
	@if [ -e $(DEVELOPING) ]; then $(MAKE) $(DEVELOPING); else $(INSTALL) -e .; fi
	@touch $@

$(DEVELOPING): $(SOURCES)
	@$(INSTALL) -e ".[dev]"
	@touch $@ $(SERVING)

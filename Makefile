# `make test` and `make serve` do all of their own set-up; they need make and Python 3.11 or later, nothing else.
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 3
HOST    ?= 127.0.0.1
PORT    ?= 8000
DEVICE  ?= auto
STORE   ?= model_store/checkpoints

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

# What the deployment's tests run, where `make programs` has fetched it.
PROGRAMS      := $(abspath $(VENV))/programs
WITH_PROGRAMS := PATH="$(abspath $(BIN)):$(PROGRAMS)/usr/bin:$(PROGRAMS)/usr/sbin:$$PATH"

# Hundreds of processes are started, each of which would otherwise compile anew all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help test lint unit serve programs image deploy-check format clean

help:
	@echo "make test          check style, types and layers, then run every test"
	@echo "make serve         start the service and design the example listener's filter (PORT=8000 DEVICE=auto)"
	@echo "make deploy-check  lint the Dockerfile, check the dashboards, run the image's build steps without Docker"
	@echo "make programs      fetch what the deployment's tests run (nginx, Prometheus), so that make test runs these too"
	@echo "make format        let ruff rewrite the sources"
	@echo "make clean         remove the environment and what the tools left behind"

# Style and types beside the tests, whose first files (tests/conftest.py) mind no company.
test: $(STAMP)
	@$(MAKE) -j2 lint unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Processes of one thread each beat one process of several threads on these small arrays. Of three on two cores one may
# wait for a service. The files' order is that of tests/conftest.py.
unit: $(STAMP)
	$(WITH_PROGRAMS) OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

serve: $(STAMP)
	@$(BIN)/python scripts/serve.py --host $(HOST) --port $(PORT) --device $(DEVICE) --store $(STORE)

programs: $(STAMP)
	deploy/fetch_programs.sh $(PROGRAMS) $(BIN)/python

# Of the standard library alone.
image:
	$(PYTHON) deploy/run_image_steps.py --build-arg "TORCH_INDEX=$(TORCH_INDEX)"

# All that can be checked of the deployment without a Docker engine.
deploy-check: programs
	$(WITH_PROGRAMS) OMP_NUM_THREADS=1 $(BIN)/pytest tests/deploy
	$(MAKE) image

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# One environment serves both commands. The constraints reach pip's isolated build environments too
# (PIP_CONSTRAINT for pip up to 25.2, PIP_BUILD_CONSTRAINT from 25.3 on): the same build tools every time. Most of the
# modules are never imported, so none is compiled ahead.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python 3.11 or later is needed, $(PYTHON) is {v[0]}.{v[1]}: say make PYTHON=python3.12 (or the like)")'
	@echo "Installing into $(VENV), once ..."
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[dev]"
	@touch $@

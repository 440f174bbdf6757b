# `make` lists the targets. Nothing here needs root; everything that is installed goes into .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# INPUT=FILE  text for `make quickstart` instead of the text that the installation carries
# ARGS="..."  passed on to pytest by `make test` and `make slow`, as in ARGS="-k masking -x"
# PYTHON=...  the interpreter that makes .venv; by default the first Python >= 3.10 found
INPUT ?=
ARGS ?=
PYTHON ?=

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: $(STAMP)  ## make .venv and install the pinned dependencies

# The stamp holds the folder it was made in, because a virtual environment does not survive a move. It is written
# last, so an interrupted installation goes on where it stopped.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
$(STAMP): pyproject.toml constraints.txt
	@if [ -f $(STAMP) ] && [ "$$(cat $(STAMP))" != "$$(pwd -P)" ]; then rm -rf $(VENV); fi
	@rm -f $(STAMP)
	@if ! $(PY) -c "import pip" 2>/dev/null; then \
	    for python in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python3.10; do \
	        [ -n "$$python" ] || continue; \
	        if "$$python" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))" 2>/dev/null; then \
	            found=$$python; break; \
	        fi; \
	        [ "$$python" != "$(PYTHON)" ] || break; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "make setup: $(or $(PYTHON),no interpreter on PATH) is a Python >= 3.10 with venv; install one" \
	            "(Debian: apt install python3 python3-venv) or name one: make setup PYTHON=/path/to/python3" >&2; \
	        exit 1; \
	    fi; \
	    echo "Making $(VENV) with $$("$$found" --version)"; \
	    rm -rf $(VENV) && "$$found" -m venv $(VENV); \
	fi
	@echo "Installing the dependencies into $(VENV) (a few minutes, once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@printf '%s\n' "$$(pwd -P)" > $(STAMP)

.PHONY: quickstart
quickstart: $(STAMP)  ## pretrain tiny_hp_dist on text that is at hand (or INPUT=FILE), export it and try it
	@$(PY) -m electra_ds.quickstart $(if $(INPUT),--input "$(INPUT)")

.PHONY: test
test: $(STAMP)  ## run the tests, in random order (ARGS="-k masking" selects)
	@$(PY) -m pytest -q $(ARGS)

.PHONY: slow
slow: $(STAMP)  ## run the tests that take minutes
	@$(PY) -m pytest -q -m "slow and not gpu and not slurm and not docker" $(ARGS)

.PHONY: lint
lint: $(STAMP)  ## check style and format with ruff
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet .

.PHONY: format
format: $(STAMP)  ## bring the code into the format that lint asks for
	@$(PY) -m ruff check --quiet --fix .
	@$(PY) -m ruff format --quiet .

.PHONY: types
types: $(STAMP)  ## check the package with mypy
	@$(PY) -m mypy

.PHONY: clean
clean:  ## remove caches and build outputs; runs, shards and .venv stay
	@rm -rf build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

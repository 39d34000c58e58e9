# Every target works from a fresh clone: the ones that need the environment make it first.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.stamp
JOBS  ?= 2
ARGS  ?=
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# The interpreters to try, in this order; `make setup PYTHON=/opt/python/bin/python3` puts one in front.
CANDIDATES := $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11
SUPPORTED  := import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

.DEFAULT_GOAL := help
.PHONY: help setup demo warm test torture lint format bench clean distclean

help:  ## Print this list
	@echo "Targets (ARGS='...' is handed on to pytest, bench and demo; JOBS=$(JOBS) test processes):"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP)  ## Make the environment .venv, when there is none or pyproject.toml has changed

# Debian's python3 comes without ensurepip, so a venv of it has no pip: pip outside puts one in.
# The stamp comes last: whatever fails before is done again the next time.
$(STAMP): pyproject.toml
	@python=; \
	for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(SUPPORTED)' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "wirespeed needs Python 3.11 to 3.14; none of these is one: $(strip $(CANDIDATES))." >&2; \
	    echo "Install one, or say where it is: make setup PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! $(BIN)/python -c '$(SUPPORTED)' 2>/dev/null; then \
	    echo "Making $(VENV) with $$("$$python" --version) ($$(command -v "$$python"))"; \
	    if "$$python" -c 'import ensurepip' 2>/dev/null; then \
	        "$$python" -m venv --clear $(VENV); \
	    else \
	        "$$python" -m venv --clear --without-pip $(VENV) && \
	        "$$python" -m pip --python $(BIN)/python install --quiet pip; \
	    fi || exit 1; \
	fi
	@echo "Installing wirespeed and what its tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup  ## Set up and run the main job on a capture that comes with the project
	@$(BIN)/wirespeed demo $(ARGS)

# Test processes that start at once with an empty kernel cache would each compile everything.
warm: setup  ## Compile the kernels ahead, into the cache that every later run reads
	@$(BIN)/wirespeed warm

test: warm  ## Set up and run the tests
	@$(PYTEST) $(ARGS)

torture: warm  ## Run every test in its long form: hours, not minutes
	@WIRESPEED_TORTURE=1 $(PYTEST) -m 'torture or not torture' --timeout 14400 $(ARGS)

lint: setup  ## Check style, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: setup  ## Put the source into the project's format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: setup  ## Measure: make bench ARGS='capture --peer'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]' || \
	    echo "some of what it is compared with cannot be installed here; the bench says which" >&2
	@$(BIN)/python -m bench $(ARGS)

clean:  ## Remove what builds and tools left, but not .venv
	@rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## Remove .venv too
	@rm -rf $(VENV)

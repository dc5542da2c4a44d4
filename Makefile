# make up    from nothing but Python 3.11: set up and run a local ring of 5 peers
# make test  from nothing but Python 3.11: set up and run the tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# compat: a plain path entry, so that a folder called meteor beside a script does not hide the package
PIP_FLAGS := --quiet --disable-pip-version-check --config-settings editable_mode=compat

.DEFAULT_GOAL := help
.PHONY: help up test test-slow lint format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(VENV)/installed  ## set everything up and run a local ring of 5 peers
	@exec $(BIN)/meteor up

test: $(VENV)/installed-dev  ## set everything up and run the tests
	$(BIN)/python -m pytest

test-slow: $(VENV)/installed-dev  ## the long tests too
	@# Coverage-guided fuzzing has wheels for some Pythons only; its tests say so where it is skipped.
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3'
	$(BIN)/python -m pytest -m "slow or not slow"

lint: $(VENV)/installed-dev  ## format check, lint and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the virtual environment and the local ring's data
	rm -rf $(VENV) .meteor

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Meteor needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable .
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[dev]'
	@touch $@ $(VENV)/installed

# Everything that a checkout can do. Each target makes the virtual environment it needs by itself, once;
# after that a stamp makes it instant, until pyproject.toml or constraints.txt changes.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two workers suit the two cores of a small machine; WORKERS=0 runs the tests in one process.
WORKERS ?= 2
# Folders beside the package that hold Python, as far as they are there.
CHECKED := $(patsubst %/,%,$(sort $(dir $(wildcard tests/*.py bench/*.py tools/*.py examples/*.py))))

export PYTHON

.PHONY: help run test lint proto bench format clean venv
.DEFAULT_GOAL := help

help: ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

run: $(READY) ## write and read a log on this machine, and account for every record
	$(BIN)/python examples/local_log.py

test: lint ## everything that must pass: lint, then the tests
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(READY) ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p tailrace
	$(BIN)/mypy $(CHECKED)
	$(BIN)/lint-imports

format: $(READY) ## rewrite the sources as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(READY) ## generate tailrace/v1 from proto/, and docs/configuration.md from the settings
	$(BIN)/python tools/proto.py
	$(BIN)/python tools/config_docs.py

bench: $(READY) ## measure the batch format and the storage engine
	$(BIN)/python bench/codec.py
	$(BIN)/python bench/storage.py

venv: $(READY) ## only the virtual environment

$(READY): pyproject.toml constraints.txt tools/setup_venv.sh tools/requirements.py
	@tools/setup_venv.sh $(VENV)
	@touch $@

clean: ## remove the virtual environment, caches and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

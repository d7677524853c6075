PYTHON ?= python3
CORES ?= all
WORKERS ?= 2
N ?= 100
SEED ?= 0
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: help venv demo test packages lint dryrun faults bench ui clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 20

# TORCH='torch==2.x torchvision==0.y' takes another build, with the CUDA libraries that it brings;
# all else stays as locked. The versions in every record name it.
TORCH_PINS := ^(torch|torchvision|triton|cuda-.*|nvidia-[^m].*)==
.PHONY: another-torch
another-torch:

.venv/.installed: requirements.lock pyproject.toml $(if $(TORCH),another-torch)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tnfdt needs Python 3.11 or newer; set PYTHON=python3.x" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	grep -vE '$(if $(TORCH),$(TORCH_PINS),^$$)' requirements.lock > .venv/chosen.lock
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/chosen.lock $(TORCH)
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

venv: .venv/.installed ## set up .venv from requirements.lock (TORCH='torch==… torchvision==…' for another build)

demo: venv ## run the whole pipeline on scikit-learn's digits
	snakemake --cores $(CORES) --config study=demo

test: venv packages lint dryrun ## run linters, dry runs and all tests
	pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 12 tests

packages: venv ## install the system packages that some tests need, where that is allowed
	@python -m tests.packages

lint: venv ## ruff, mypy, import-linter, snakefmt, snakemake --lint
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	snakefmt --check Snakefile workflow
	snakemake --lint

dryrun: venv ## plan every study of config/studies without running it
	@for study in $(basename $(notdir $(wildcard config/studies/*.yaml))); do \
	  snakemake --dry-run --quiet --config study=$$study > /dev/null || exit 1; \
	  echo "dry run of $$study: ok"; done

faults: venv ## kill N=100 processes of a small demo, see that nothing is lost (SEED=0)
	python -m tests.integration.faults --kills $(N) --seed $(SEED)

bench: venv ## measure speed as ratios, side by side
	python -m benchmarks

ui: venv ## open the MLflow UI on 127.0.0.1:5000
	tnfdt ui

clean: ## remove what Snakemake and the test tools left behind; results stay
	rm -rf .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis

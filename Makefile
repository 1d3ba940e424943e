# Every target builds .venv by itself; a machine needs Python 3.11 or newer and make, nothing else.

PYTHON ?= python3
# More than two cores: tests wait for disks, clocks and processes for half of their time.
JOBS ?= 3
PYTEST_ARGS ?=
SOAK_ARGS ?=
UV ?= uv==0.13.7

BIN := .venv/bin
LOCK := requirements/dev.lock
CODE := src tests proto docs/spec $(wildcard bench) $(wildcard examples)
FAST_TESTS := $(wildcard $(addprefix tests/,unit architecture conformance scenarios model))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup format lint check test demo demo-cluster bench bench-peers bench-engines bench-pipeline soak soak-cluster protos lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## build .venv from the hashed lock (again only when the lock or pyproject changed)

.venv/.locked: $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit("OmniRelay needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --only-binary :all: --no-binary pyspark --require-hashes -r $(LOCK)
	@touch $@

.venv/.ready: .venv/.locked pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

format: setup ## rewrite the code as `make lint` wants it
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

lint: setup ## format, ruff, mypy, doors, dependencies, spelling
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry src
	$(BIN)/codespell

check: lint ## the everyday loop: lint and the fast tests
	$(BIN)/pytest -q -n $(JOBS) $(FAST_TESTS) $(PYTEST_ARGS)

test: lint ## everything the pipeline runs, ending with the reliability figures
	$(BIN)/python -m omnirelay.testing.figures --clear
	$(BIN)/pytest -q -n $(JOBS) tests $(PYTEST_ARGS)
	$(BIN)/python -m omnirelay.testing.figures

demo: setup ## kill a worker and the node, let a zombie try; proved from the journal
	$(BIN)/omnirelay demo

demo-cluster: setup ## three nodes over one journal lose their owner under load; prints how long that took
	$(BIN)/omnirelay demo --cluster

bench: setup ## measure ours beside its limits and its peers; writes bench/results/latest.json
	$(BIN)/python -m bench

.venv-peers/.ready: requirements/peers.lock
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@touch $@

bench-peers: setup .venv-peers/.ready ## the wire beside Redis, PostgreSQL, NATS, beanstalkd and others (fetches them)
	$(BIN)/python -m bench wire bare

bench-engines: setup .venv-peers/.ready ## journals on engines beside their own queues and clients, failover
	$(BIN)/python -m bench engines --rounds 3

bench-pipeline: setup ## the pipeline beside Spark, DuckDB and the core (an hour or two; goes on where it was)
	$(BIN)/python -m bench pipeline

soak: setup ## simulate schedules, meshes and power cuts until interrupted
	$(BIN)/python -m omnirelay.testing.soak $(SOAK_ARGS)

soak-cluster: setup ## trouble a mesh of real nodes over PostgreSQL, until interrupted
	$(BIN)/python -m omnirelay.testing.cluster_soak $(SOAK_ARGS)

protos: setup ## write the gRPC code again from proto/
	$(BIN)/python proto/generate.py

lock: ## resolve pyproject.toml again into the hashed lock (needs the network)
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/pip install --quiet --disable-pip-version-check '$(UV)'
	.lock-venv/bin/uv pip compile pyproject.toml --quiet --upgrade --extra bench --extra nats --extra node --extra objects --extra postgres --extra redis --extra spark --group dev \
		--universal --python-version 3.11 --only-binary :all: --no-binary pyspark --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --output-file $(LOCK)
	.lock-venv/bin/uv pip compile requirements/peers.in --quiet --upgrade \
		--universal --python-version 3.11 --only-binary :all: --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --output-file requirements/peers.lock

clean: ## remove .venv, caches and reports
	rm -rf .venv .lock-venv .venv-peers .peers .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist reports
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

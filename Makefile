# Gnomon: every command of the project. `make` alone shows them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA := $(or $(GNOMON_DATA),$(CURDIR)/var)
SEEDS ?= 500
PYTHON_FOLDERS := $(wildcard src tests benchmarks examples scripts)
TYPED_FOLDERS := $(wildcard src tests benchmarks)
SETUP_STAMP := $(VENV)/.setup-done
RUN_STAMP := $(VENV)/.run-done
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --generate-hashes
CONTAINER_EXTRAS := postgres server grpc rabbitmq kafka otel ed25519 uvloop
PEERS := pgqueuer awa procrastinate huey
PEER_LOCKS := benchmarks/peers/requirements

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

##@ Use

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: $(RUN_STAMP) ## Start everything in one process on SQLite, in ./var or $GNOMON_DATA (DEMO=1: with examples)
	@mkdir -p "$(DATA)"
	@GNOMON_DATA="$(DATA)" exec $(BIN)/gnomon up $(if $(filter-out 0,$(DEMO)),--demo)

# What running needs, and nothing for developing; where `make setup` was, all of it is there.
$(RUN_STAMP): pyproject.toml requirements.lock scripts/make-venv
	@PYTHON="$(PYTHON)" scripts/make-venv $(VENV) requirements.lock
	@touch $@

##@ Develop

.PHONY: setup
setup: $(SETUP_STAMP) ## Make .venv with everything needed to develop

$(SETUP_STAMP): pyproject.toml requirements-dev.lock scripts/make-venv
	@PYTHON="$(PYTHON)" scripts/make-venv $(VENV) requirements-dev.lock
	@touch $(RUN_STAMP) $@

.PHONY: format
format: $(SETUP_STAMP) ## Lay the code out and mend what can be mended
	@$(BIN)/ruff format $(PYTHON_FOLDERS)
	@$(BIN)/ruff check --fix $(PYTHON_FOLDERS)

.PHONY: check
check: $(SETUP_STAMP) ## Layout, lint, types, pages, architecture
	@echo "== layout"
	@$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	@echo "== lint"
	@$(BIN)/ruff check $(PYTHON_FOLDERS)
	@echo "== types"
	@$(BIN)/mypy --strict $(TYPED_FOLDERS)
	@echo "== pages"
	@$(MAKE) --no-print-directory site
	@echo "== architecture"
	@$(BIN)/python -m pytest -q tests/architecture

.PHONY: schema
schema: $(SETUP_STAMP) ## Write each engine's schema.sql anew from its migrations
	@$(BIN)/python -m tests.migration.dumps

.PHONY: proto
proto: $(SETUP_STAMP) ## Write src/gnomon/v1 anew from proto/ (BASELINE=1: promise it from now on)
	@$(BIN)/python scripts/proto.py $(if $(filter-out 0,$(BASELINE)),--baseline)

.PHONY: docs
docs: $(SETUP_STAMP) ## Write the generated pages of docs/reference anew
	@$(BIN)/python -m scripts.docs

.PHONY: site
site: $(SETUP_STAMP) ## Build the pages as a site into build/site; nothing in it comes from another host
	@mkdir -p build
	@# Not --quiet: it would hide warnings from --strict, too.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > build/site.log 2>&1 || { cat build/site.log; exit 1; }

.PHONY: lock
lock: $(SETUP_STAMP) ## Bring the lock files to the newest versions (PEERS_TOO=1: those of the benchmarks' peers as well)
	@$(BIN)/python -m pip install --quiet uv
	@$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements-dev.lock
	@$(MAKE) --no-print-directory lock-runtime
	@$(if $(filter-out 0,$(PEERS_TOO)),cd $(PEER_LOCKS) && for peer in $(PEERS); do \
		$(CURDIR)/$(COMPILE) --upgrade $$peer.in -o $$peer.txt || exit 1; done)

# The same versions as in development: what is tested is what runs.
.PHONY: lock-runtime
lock-runtime:
	@$(COMPILE) -c requirements-dev.lock --extra server pyproject.toml -o requirements.lock
	@$(COMPILE) -c requirements-dev.lock $(foreach extra,$(CONTAINER_EXTRAS),--extra $(extra)) pyproject.toml -o deploy/requirements.lock

.PHONY: audit
audit: $(SETUP_STAMP) ## Look for known vulnerabilities in the locked packages (needs the network)
	@$(BIN)/python -m pip install --quiet pip-audit
	@$(BIN)/pip-audit --require-hashes --disable-pip -r requirements-dev.lock -r deploy/requirements.lock

.PHONY: sbom
sbom: $(SETUP_STAMP) ## Write dist/sbom.json, the bill of materials of the locked packages (CycloneDX)
	@mkdir -p dist
	@$(BIN)/python scripts/sbom.py requirements-dev.lock > dist/sbom.json
	@echo "wrote dist/sbom.json"

.PHONY: console-images
console-images: test-setup ## Pictures of every view of the console into build/console-images (DOCS=1: those of the pages, into docs/images)
	@$(BIN)/python -m tests.acceptance.console.images $(if $(filter-out 0,$(DOCS)),docs/images --docs,build/console-images)

.PHONY: clean
clean: ## Remove .venv, the peers' environments and what tools left behind (not the data in ./var)
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests $(wildcard benchmarks examples scripts) -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Test

.PHONY: test-setup
test-setup: $(SETUP_STAMP) ## Install PostgreSQL, PgBouncer, RabbitMQ and Chromium for the tests, if missing (apt; starts no service)
	@scripts/test-setup

.PHONY: test
test: test-setup ## Everything, in stages, with 500 simulation seeds (SEEDS=2000: as many as continuous integration)
	@SEEDS=$(SEEDS) scripts/test

.PHONY: test-unit
test-unit: $(SETUP_STAMP) ## The pure parts; seconds
	@$(BIN)/python -m pytest -q tests/unit

.PHONY: test-pg
test-pg: test-setup ## Only what needs PostgreSQL (GNOMON_TEST_POSTGRES=dsn for a database of yours)
	@$(BIN)/python -m pytest -q -n auto -m "postgres and not fault"

.PHONY: sim
sim: $(SETUP_STAMP) ## Simulation under virtual time (SEEDS=n)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS)

.PHONY: sim-scale
sim-scale: $(SETUP_STAMP) ## 1,000 workers and 4,096 shards under virtual time, some minutes (ARGS="--workers 100 --shards 400": fewer)
	@$(BIN)/python -m tests.simulation.scale $(ARGS)

.PHONY: fault
fault: test-setup ## Real processes and servers, killed, frozen and cut off
	@$(BIN)/python -m pytest -v -m fault

.PHONY: test-postgres
test-postgres: test-setup ## The tests on PostgreSQL 14, 16, 17 and 18 (VERSIONS=18: one of them; needs npm)
	@scripts/test-postgres $(VERSIONS)

.PHONY: test-citus
test-citus: $(SETUP_STAMP) ## The tests of the engine on a Citus cluster of yours (GNOMON_TEST_CITUS=dsn of its coordinator)
	@scripts/test-citus

.PHONY: fault-full
fault-full: test-setup ## 20 kills timed; stages with 10,000 entities, a broker away for 60 s, a walk over 100,000
	@GNOMON_FAULT_FULL=1 $(BIN)/python -m pytest -v -s tests/fault/test_recovery.py tests/fault/test_stages.py

##@ Measure

.PHONY: bench
bench: test-setup ## All benchmarks beside their peers, about 1.5 h (ARGS="--only drain": a part; ARGS=--help: what there is)
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-quick
bench-quick: test-setup ## The same, short: to see within minutes that they work
	@$(BIN)/python -m benchmarks --quick $(ARGS)

.PHONY: bench-page
bench-page: $(SETUP_STAMP) ## Make docs/benchmarks.md of the newest run (FILE="benchmarks/results/….json": of others)
	@$(BIN)/python -m benchmarks --publish $(FILE)

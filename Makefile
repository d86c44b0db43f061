# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both create .venv from python3 (3.11 or newer) and PyPI; run again, they start at once.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
KERNEL := $(wildcard src/ottla/record/native_*.py src/ottla/record/native_*.pxd)

.PHONY: help demo test lint types tidy unit property system peers bench soak lock clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1|/' | column -t -s '|'

$(READY): requirements.lock pyproject.toml $(wildcard setup.py) $(KERNEL)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Ottla needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V)"; exit 1; }
	@test -x $(PY) || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the packages of requirements.lock"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: $(READY)  ## the main job: a broker, a topic of web-site events, a Spark pipeline, a report (LOG=access.log replays a real log)
	@$(PY) -m ottla demo $(if $(LOG),--log "$(LOG)") $(DEMO_ARGS)

test: lint types tidy unit property system  ## every default test

lint: $(READY)  ## ruff: style and format
	$(VENV)/bin/ruff check src tests benchmarks setup.py
	$(VENV)/bin/ruff format --check src tests benchmarks setup.py

types: $(READY)  ## mypy --strict on src
	$(VENV)/bin/mypy

tidy: $(READY)  ## the limits of the house: sizes, arrows, banned calls, docstrings
	$(VENV)/bin/pytest tests/tidy

unit: $(READY)  ## one room at a time
	$(VENV)/bin/pytest tests/unit

property: $(READY)  ## hypothesis, and parity with independent implementations
	$(VENV)/bin/pytest tests/property tests/wire

system: $(READY)  ## real clients, real processes, real Spark, the README as written
	$(VENV)/bin/pytest tests/clients tests/system

peers: $(READY)  ## Kafka's own tools, and clients and brokers of other languages (fetched into .peers)
	$(VENV)/bin/pytest tests/peers -rs
	$(PY) -m benchmarks.peers.bench_kafka
	$(PY) -m benchmarks.peers.bench_spark_kafka

bench: $(READY)  ## every benchmark beside its peer or the machine's own limit
	$(PY) -m benchmarks

soak: $(READY)  ## every crash state of the disk, and a load with random kills (SOAK_SECONDS=600)
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) $(VENV)/bin/pytest tests/soak -s

lock: $(READY)  ## rewrite requirements.lock from pyproject.toml
	$(VENV)/bin/pip install --quiet uv
	$(VENV)/bin/uv pip compile -q --universal --no-header --no-annotate --python-version 3.11 \
	  --extra test --extra fast --extra spark pyproject.toml -o requirements.lock

clean:  ## remove what the targets made
	rm -rf $(VENV) .peers build demo-output spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis

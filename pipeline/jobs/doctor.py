"""`odradek pipeline doctor`: checks everything that a job needs, and reports the state and a remedy of each.

A finding is ok, a warning (the job runs) or a problem (it does not). The exit status is 1 with a problem, otherwise 0.
Nothing is changed. Spark is only started on a cluster, to check each executor's access to the lake. A check that
needs a missing package is a problem, and the others are still done.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from odradek.pipeline.errors import SHARED_LAKE, PipelineError
from odradek.pipeline.report.findings import OK, PROBLEM, WARNING, Finding, problem
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.home import pyspark_version, spark_home
from odradek.pipeline.spark.jars import find_jars, jar_names
from odradek.pipeline.spark.java import find_java
from odradek.pipeline.spark.master import is_local
from odradek.pipeline.spark.memory import available_memory, planned_memory, size_of
from odradek.pipeline.spark.options import default_options, default_options_file
from odradek.pipeline.spark.releases import release_of
from odradek.pipeline.state.places import Places
from odradek.pipeline.variables import hidden

PACKAGES = ("pyspark", "deltalake", "pyarrow", "pandas", "obstore", "protobuf", "kafka-python", "matplotlib")
INSTALL = "pip install 'odradek[spark]'"
INSTALL_ICEBERG = "pip install 'odradek[iceberg]'"
PATIENCE_MS = 5000
"""How long the broker may take to respond."""
LITTLE_SPACE = 1 << 30
"""Free bytes on the lake's disk below which there is a warning."""


def run(settings: Settings) -> int:
    """Prints the findings. Returns the exit status."""
    worst = 0
    for finding in examine(settings):
        print(hidden(str(finding), settings.secrets), flush=True)
        worst = max(worst, int(finding.state == PROBLEM))
    return worst


def examine(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Yields all findings, in the order in which a job would encounter them."""
    yield _packages(settings)
    yield from _with_packages("SPARK_HOME", lambda: iter([_attempt("SPARK_HOME", lambda: _spark_home(environ))]))
    yield from _with_packages("Java", lambda: iter([_attempt("Java", lambda: _java(environ))]))
    yield _attempt("memory", lambda: _memory(settings, environ))
    yield from _with_packages("jars", lambda: iter([_attempt("jars", lambda: _jars(environ))]))
    yield _lake(settings, Places.of(settings))
    if settings.sink == "iceberg" and settings.iceberg:
        yield from _with_packages("catalog", lambda: iter([_attempt("catalog", lambda: _catalog(settings))]))
    answers = False
    for finding in _with_packages("broker", lambda: _broker_and_topics(settings)):
        yield finding
        answers = answers or (finding.subject, finding.state) == ("broker", OK)
    if settings.schema_registry and (settings.topics or settings.schema_subjects):
        yield from _with_packages("registry", lambda: iter([_attempt("registry", lambda: _registry(settings))]))
    yield from _with_packages("state", lambda: _state(settings, answers))
    if settings.master and not is_local(settings.master):
        yield from _with_packages("executors", lambda: _executors(settings))


def _attempt(subject: str, look: Callable[[], Finding]) -> Finding:
    """Returns the finding of `look`. A PipelineError becomes a problem with its remedy."""
    try:
        return look()
    except PipelineError as error:
        return problem(subject, error)


def _with_packages(subject: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yields the findings of `look`. A missing package becomes a problem of `subject`."""
    try:
        yield from look()
    except ModuleNotFoundError as error:
        yield Finding(subject, PROBLEM, f"cannot be checked without {str(error.name).split('.')[0]}", INSTALL)


def _packages(settings: Settings) -> Finding:
    found, missing = [], []
    for name in (*PACKAGES, "pyiceberg") if settings.sink == "iceberg" else PACKAGES:
        try:
            found.append(f"{name} {pyspark_version() if name == 'pyspark' else version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    install = INSTALL_ICEBERG if missing == ["pyiceberg"] else INSTALL
    python = f"Python {sys.version.split()[0]} at {sys.executable}"
    if missing:
        return Finding("packages", PROBLEM, f"{python} lacks {', '.join(missing)}", install)
    return Finding("packages", OK, f"{python}; {', '.join(found)}")


def _spark_home(environ: Mapping[str, str]) -> Finding:
    """Raises PipelineError."""
    if (home := spark_home(pyspark_version(), environ)) is not None:
        return Finding("SPARK_HOME", OK, f"is {home}, whose engine has PySpark's version")
    return Finding("SPARK_HOME", OK, "is not set, so PySpark's own engine is used")


def _catalog(settings: Settings) -> Finding:
    """Raises PipelineError."""
    from odradek.pipeline.sinks.iceberg.tables import TablePlace

    rows = TablePlace(Places.of(settings).rows, settings.iceberg)
    says = "has no table yet" if rows.find() is None else "has the table"
    return Finding("catalog", OK, f"{says} {'.'.join(rows.name)}")


def _registry(settings: Settings) -> Finding:
    """Raises PipelineError."""
    from odradek.pipeline.jobs.registered_schemas import RegisteredSchemas, read_known, refuse_unfit_settings

    refuse_unfit_settings(settings)
    state = Places.of(settings).state
    new = RegisteredSchemas(settings, state, time.sleep).check(lambda: settings.topics)
    known = f"{len(read_known(state).schemas)} known schema(s) as before"
    return Finding("registry", OK, f"{settings.schema_registry} has {f'schema {min(new)}' if new else known}")


def _memory(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Checks the heap of the Spark that a job starts. Under spark-submit the heap is set there."""
    if "PYSPARK_GATEWAY_PORT" in environ:
        return Finding("memory", OK, "set by spark-submit for its Java process (--driver-memory)")
    heap, source = planned_memory(settings, _default_options(environ), environ)
    says = f"a heap of {heap} for Spark's driver: {source}"
    available = available_memory()
    if (size_of(heap) or 0) > available:
        remedy = "set a smaller driver-memory, or add memory"
        return Finding("memory", WARNING, f"{says}; {available / (1 << 30):.1f} GiB are available", remedy)
    return Finding("memory", OK, says)


def _default_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of spark-defaults.conf. Empty if Spark is not installed, which another finding reports."""
    pyspark = importlib.util.find_spec("pyspark")
    home = environ.get("SPARK_HOME") or (os.path.dirname(pyspark.origin) if pyspark and pyspark.origin else None)
    return default_options(default_options_file(Path(home), environ)) if home else {}


def _java(environ: Mapping[str, str]) -> Finding:
    java = find_java(pyspark_version(), environ)
    return Finding("Java", OK, f"{java.version} at {java.home}, from {java.source}")


def _jars(environ: Mapping[str, str]) -> Finding:
    pyspark = pyspark_version()
    jars = find_jars(pyspark, environ)
    if jars is None:
        names = ", ".join(jar_names(release_of(pyspark).jars))
        says = f"{names} are missing, and so is Maven; Spark will fetch them with Ivy"
        return Finding("jars", WARNING, says, "install Maven, or set ODRADEK_SPARK_JARS to a directory that has them")
    why = "of the same version as PySpark"
    if jars.spark != pyspark:
        why = f"of Spark {jars.spark}, which serve all of its minor version: not all of {pyspark} could be had"
    return Finding("jars", OK, f"{len(jars.paths)} in {jars.paths[0].parent}, {why}")


def _lake(settings: Settings, places: Places) -> Finding:
    if not places.rows.is_local:
        return _store(settings, places)
    directory = places.rows.path.parent
    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Finding("lake", PROBLEM, f"{existing} is not writable", "set another directory: --lake DIR")
    free = shutil.disk_usage(existing).free
    says = f"{directory}, {free / (1 << 30):.1f} GiB free"
    return Finding("lake", WARNING, says, "free some space") if free < LITTLE_SPACE else Finding("lake", OK, says)


def _store(settings: Settings, places: Places) -> Finding:
    """Creates a file, and checks that it cannot be created twice: the state depends on that."""
    name = f"doctor-{uuid.uuid4().hex}"
    try:
        try:
            right = places.state.create(name, b"1") and not places.state.create(name, b"2")
            right = right and places.state.read(name) == b"1"
        finally:
            places.state.remove(name)
    except Exception as error:  # Each store has its own errors.
        message = f"{error}".strip().splitlines()[0]
        return Finding("lake", PROBLEM, f"{settings.lake} is not writable: {message}", "check lake and [store]")
    if not right:
        says = f"{settings.lake} overwrites an existing file despite a conditional put"
        return Finding("lake", PROBLEM, says, "use a store with conditional puts")
    return Finding("lake", OK, f"{settings.lake} is writable, and supports conditional puts")


def _broker_and_topics(settings: Settings) -> Iterator[Finding]:
    from kafka.errors import KafkaError

    from odradek.pipeline.kafka.admin import admin_client

    servers = settings.bootstrap_server
    try:
        with admin_client(settings, PATIENCE_MS) as admin:
            topics = {one["name"]: len(one["partitions"]) for one in admin.describe_topics() if not one["is_internal"]}
    except (KafkaError, OSError, ValueError) as error:
        remedy = "start it (`odradek serve`), or name another: --bootstrap-server HOST:PORT"
        yield Finding("broker", PROBLEM, f"{servers} does not respond: {' '.join(str(error).split())}", remedy)
        return
    yield Finding("broker", OK, f"{servers} responds and has {len(topics)} topic(s)")
    yield from _topics(settings, topics)


def _topics(settings: Settings, there: Mapping[str, int]) -> Iterator[Finding]:
    """Checks the topics. `there`: the number of partitions of each topic of the broker."""
    if not settings.topics and not settings.topics_pattern:
        yield Finding("topics", PROBLEM, "none is set", "--topics TOPIC,TOPIC or --topics-pattern REGEX")
    for name in settings.topics:
        if name not in there:
            remedy = f"create it: odradek topics create {name} --partitions 4"
            yield Finding(f"topic {name}", PROBLEM, "does not exist", remedy)
        else:
            yield Finding(f"topic {name}", OK, f"{there[name]} partition(s)")
    if (pattern := settings.pattern) is not None:
        named = sorted(name for name in there if pattern.fullmatch(name))
        if named:
            yield Finding("topics", OK, f"{settings.topics_pattern!r} matches {', '.join(named)}")
        else:
            says = f"{settings.topics_pattern!r} matches no topic yet"
            yield Finding("topics", PROBLEM, says, "create one, or change topics-pattern")
    elif settings.topics_pattern:
        says = f"{settings.topics_pattern!r} cannot be compiled by Python, so its topics are not shown"
        yield Finding("topics", WARNING, says, "check that it is a Java regular expression")


def _executors(settings: Settings) -> Iterator[Finding]:
    """Starts Spark on a cluster, and lets each executor write to the lake and read from it."""
    from odradek.pipeline.jobs.executors import shared_by_executors
    from odradek.pipeline.spark.errors import as_pipeline_error
    from odradek.pipeline.spark.session import open_session

    try:
        found = shared_by_executors(open_session(settings), Places.of(settings).state)
    except Exception as error:  # Spark raises many types of errors.
        yield problem("executors", as_pipeline_error(error, f"the cluster {settings.master} does not work"))
        return
    for host, message in sorted(found.problems.items()):
        yield Finding(f"executors on {host}", PROBLEM, message, SHARED_LAKE)
    if not found.problems:
        yield Finding("executors", OK, f"{found.met} of {settings.master} read and write {settings.lake}")


def _state(settings: Settings, broker_answers: bool) -> Iterator[Finding]:
    from odradek.pipeline.jobs.state_findings import state_findings

    yield from state_findings(settings, broker_answers)

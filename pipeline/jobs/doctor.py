"""Looks at everything that a job needs, and says of each what is there or what to do.

A finding is ok, a warning (the job runs) or a problem (it does not). The exit status is 1 with a problem, else 0.
Nothing is changed, and no Spark is started.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from pipeline.errors import PipelineError
from pipeline.jars import find_jars, jar_names
from pipeline.java import find_java
from pipeline.places import Places
from pipeline.settings import Settings

OK, WARNING, PROBLEM = "ok", "warning", "problem"
PACKAGES = ("pyspark", "deltalake", "pyarrow", "kafka-python", "matplotlib")
PATIENCE_MS = 5000
"""How long the broker may take to answer."""
LITTLE_SPACE = 1 << 30
"""Bytes free on the lake's disk below which a warning is due."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to do if it is not well."""

    subject: str
    state: str
    says: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {OK: "ok     ", WARNING: "warning", PROBLEM: "PROBLEM"}[self.state]
        return f"{mark}  {self.subject}: {self.says}" + (f"\n         -> {self.remedy}" if self.remedy else "")


def run(settings: Settings) -> int:
    """Prints the findings."""
    worst = 0
    for finding in examine(settings):
        print(finding, flush=True)
        worst = max(worst, int(finding.state == PROBLEM))
    return worst


def examine(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """All findings, in the order in which a job would meet them."""
    yield _packages()
    yield _spark_home(environ)
    yield _attempt("Java", lambda: _java(environ))
    yield _attempt("jars", lambda: _jars(environ))
    yield _lake(Places.of(settings))
    yield from _broker_and_topics(settings)


def _attempt(subject: str, look: Callable[[], Finding]) -> Finding:
    """What `look` finds; a PipelineError is a problem with its remedy."""
    try:
        return look()
    except PipelineError as error:
        return Finding(subject, PROBLEM, error.problem, error.remedy)


def _packages() -> Finding:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    python = f"Python {sys.version.split()[0]} at {sys.executable}"
    if missing:
        return Finding("packages", PROBLEM, f"{python} lacks {', '.join(missing)}", "pip install 'odradek[spark]'")
    return Finding("packages", OK, f"{python}; {', '.join(found)}")


def _spark_home(environ: Mapping[str, str]) -> Finding:
    if home := environ.get("SPARK_HOME"):
        return Finding(
            "SPARK_HOME", PROBLEM, f"is {home}, whose engine would run instead of PySpark's", "unset SPARK_HOME"
        )
    return Finding("SPARK_HOME", OK, "is not set, so that PySpark's own engine runs")


def _java(environ: Mapping[str, str]) -> Finding:
    java = find_java(environ)
    return Finding("Java", OK, f"{java.version} at {java.home}, from {java.source}")


def _jars(environ: Mapping[str, str]) -> Finding:
    jars = find_jars(version("pyspark"), environ)
    if jars is None:
        says = f"{', '.join(jar_names())} are not there yet and there is no Maven; Spark will ask Ivy for them"
        return Finding("jars", WARNING, says, "install Maven, or set ODRADEK_SPARK_JARS to a directory that has them")
    return Finding("jars", OK, f"{len(jars)} in {jars[0].parent}, of the same version as PySpark")


def _lake(places: Places) -> Finding:
    directory = places.rows.parent
    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Finding("lake", PROBLEM, f"{existing} cannot be written", "choose another directory: --lake DIR")
    free = shutil.disk_usage(existing).free
    says = f"{directory}, {free / (1 << 30):.1f} GiB free"
    return Finding("lake", WARNING, says, "make room") if free < LITTLE_SPACE else Finding("lake", OK, says)


def _broker_and_topics(settings: Settings) -> Iterator[Finding]:
    from kafka.errors import KafkaError

    from pipeline.kafka_admin import admin_client

    servers = settings.bootstrap_server
    try:
        with admin_client(settings, PATIENCE_MS) as admin:
            topics = {one["name"]: len(one["partitions"]) for one in admin.describe_topics() if not one["is_internal"]}
    except (KafkaError, OSError, ValueError) as error:
        remedy = "start it (`odradek serve`), or name another: --bootstrap-server HOST:PORT"
        yield Finding("broker", PROBLEM, f"{servers} does not answer: {' '.join(str(error).split())}", remedy)
        return
    yield Finding("broker", OK, f"{servers} answers and has {len(topics)} topic(s)")
    yield from _topics(settings, topics)


def _topics(settings: Settings, there: Mapping[str, int]) -> Iterator[Finding]:
    """`there`: the partitions of each topic that the broker has."""
    if not settings.topics and not settings.topics_pattern:
        yield Finding("topics", PROBLEM, "none is named", "--topics TOPIC,TOPIC or --topics-pattern REGEX")
    for name in settings.topics:
        if name not in there:
            remedy = f"create it: odradek topics create {name} --partitions 4"
            yield Finding(f"topic {name}", PROBLEM, "is not there", remedy)
        else:
            yield Finding(f"topic {name}", OK, f"{there[name]} partition(s)")
    if settings.topics_pattern:
        named = sorted(name for name in there if re.fullmatch(settings.topics_pattern, name))
        says = f"{settings.topics_pattern!r} names {', '.join(named) or 'no topic yet'}"
        yield Finding("topics", OK if named else WARNING, says)

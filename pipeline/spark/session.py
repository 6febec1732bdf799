"""Opens the Spark session of a job, with the connector, and with options in place of unsuitable defaults of Spark.

There are three cases. (a) Nothing is running: Spark's Java process is started (launch.py). (b) `spark-submit` has
started it, without a context: its master and its options are kept, and ours are added. (c) The program has a session,
which is used. In (b) and (c) an option of `[spark]` that can no longer take effect is an error (running.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.home import spark_home
from odradek.pipeline.spark.jars import find_jars, jar_names
from odradek.pipeline.spark.launch import AVRO_LIMITS, PYTHON, REQUIRED, launch, missing_options, packages_missing
from odradek.pipeline.spark.master import HOST, LOCAL, as_host, check_master, driver_address, is_local
from odradek.pipeline.spark.memory import OPTION, given_memory
from odradek.pipeline.spark.package import ship_package
from odradek.pipeline.spark.releases import release_of
from odradek.pipeline.spark.running import (
    AT_LAUNCH,
    add_jars,
    apply,
    given_jars,
    is_there,
    refuse_late,
    refuse_other_master,
    set_property,
)

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
PARTITIONS_PER_CORE = 3
"""With a local master. With Spark's default of 200, which adaptive execution coalesces afterwards, a batch of 5,000
rows takes 1.8 times the processor time of 6 partitions in local[2]; between 2 and 16 there is no difference."""
LOUD = ("py4j", "kafka.net", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of libraries that log errors with stack traces, although these are also raised and reported in one line."""


def open_session(settings: Settings, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the session of a job, started unless the process has one. Raises PipelineError.

    `extra`: options of the session that override all others."""
    try:
        from pyspark import SparkContext
    except ImportError as error:
        raise PipelineError("PySpark is not installed", "pip install 'odradek[spark]'") from error
    if settings.master:
        check_master(settings.master)
    memory = given_memory(settings)
    wanted = {**({OPTION: memory} if memory else {}), **settings.spark, **(extra or {})}
    with _handler_kept():
        is_open = SparkContext._active_spark_context is not None
        session = _joined(settings, wanted) if is_open else _started(settings, wanted)
    _be_quiet(session)
    ship_package(session)
    return session


def _joined(settings: Settings, wanted: Mapping[str, str]) -> SparkSession:
    """Returns the session that the process has."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    refuse_other_master(settings.master, str(session.sparkContext.master))
    apply(session, {**REQUIRED, **wanted})
    _complete(session)
    return session


def _started(settings: Settings, wanted: Mapping[str, str]) -> SparkSession:
    """Starts a session, and the Java process unless it is running."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if runs := _java_runs():
        SparkContext._ensure_initialized()
        conf = SparkConf()
        conf.setAll(list(_added(settings, wanted, conf).items()))
    else:
        options = launch(settings, wanted)
        conf = SparkConf().setAll(list(options.items()))
    SparkContext.getOrCreate(conf)
    session = SparkSession.builder.getOrCreate()
    if runs:
        _complete(session)
    if is_local(str(session.sparkContext.master)) and not conf.contains(PARTITIONS):
        session.conf.set(PARTITIONS, PARTITIONS_PER_CORE * session.sparkContext.defaultParallelism)
    return session


def _java_runs() -> bool:
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _added(settings: Settings, wanted: Mapping[str, str], conf: SparkConf) -> dict[str, str]:
    """Returns the options to add to those of a running Java process, given to spark-submit. Raises PipelineError."""
    there = dict(conf.getAll())
    refuse_late(wanted, there)
    master = settings.master or wanted.get("spark.master") or there.get("spark.master") or LOCAL
    ours = {name: value for name, value in missing_options(there).items() if name not in AT_LAUNCH}
    options = {**ours, **wanted, "spark.master": master}
    if there.get("spark.app.name") in (None, "pyspark-shell", Path(sys.argv[0]).name):
        options.setdefault("spark.app.name", f"odradek-{settings.name}")
    if HOST not in {**there, **options} and (address := driver_address(master)):
        options[HOST] = as_host(address)
    if python := wanted.get(PYTHON):
        os.environ["PYSPARK_PYTHON"] = python
    elif is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return options


def _complete(session: SparkSession) -> None:
    """Adds what only a Java process that we launched has from the start: the jars, and limits for Avro's reader."""
    import pyspark

    home = spark_home(pyspark.__version__) or Path(pyspark.__file__).parent
    names = jar_names(release_of(pyspark.__version__).jars)
    given = given_jars(session.sparkContext.getConf().get)
    if not all(is_there(name, given, home) for name in names):
        found = find_jars(pyspark.__version__)
        if found is None:
            raise packages_missing(pyspark.__version__)
        add_jars(session, [jar for jar in found.paths if not is_there(jar.name, given, home)])
    for name, value in AVRO_LIMITS.items():
        set_property(session.sparkContext._jvm, name, value)


def _be_quiet(session: SparkSession) -> None:
    if not os.environ.get("ODRADEK_DEBUG"):
        session.sparkContext.setLogLevel("FATAL")
        for name in LOUD:
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _handler_kept() -> Iterator[None]:
    """Restores the handler of SIGINT. PySpark's own would abort whatever is running."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)

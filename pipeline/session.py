"""The Spark session of a job, with the connector and everything that Spark gets wrong when it is left alone."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jars import find_jars, packages
from odradek.pipeline.java import find_java
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark_options import default_options_file, in_private_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}.maxLength={limit}"
    for what, limit in {"string": 64 << 20, "bytes": 64 << 20, "collectionItems": 4 << 20}.items()
)
"""Avro's reader makes room for as much as a length says: without limits ten bytes of rubbish end the JVM."""

DEFAULTS = {
    "spark.driver.defaultJavaOptions": AVRO_LIMITS,
    "spark.executor.defaultJavaOptions": AVRO_LIMITS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",  # a state store each; fixed for the life of a checkpoint
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Delta's; by default 96 bits without statistics
}
"""Settings of the session; those of `[spark]` go over them."""

MASTERS = re.compile(r"local|local\[.+]|local-cluster\[.+]|yarn|(spark|k8s)://.+")
"""With another the Java process of Spark ends before it can say why."""
LOUD = ("py4j", "kafka.net", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of libraries that tell of errors, with traces, which are raised too and told in a line."""


def open_session(settings: Settings, extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session of a job, started unless the process has one. Raises PipelineError.

    `extra`: session settings that go over all others."""
    try:
        import pyspark
    except ImportError as error:
        raise PipelineError("PySpark is not installed", "pip install 'odradek[spark]'") from error
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        _prepare_environment()
    if not MASTERS.fullmatch(settings.master):
        raise PipelineError(f"master {settings.master!r} is none of Spark's", "give local[*], or spark://HOST:PORT")
    conf = SparkConf().setAppName(f"odradek-{settings.name}").setMaster(settings.master)
    home = Path(pyspark.__file__).parent
    jars = _jars(pyspark.__version__, settings.format == "protobuf")
    options = {**DEFAULTS, **jars, **settings.spark, **(extra or {})}
    with _handler_kept():
        with in_private_file(options, default_options_file(home)):
            SparkContext._ensure_initialized(conf=conf)  # starts the Java process; what it is given others see
        conf.setAll(list(options.items()))
        SparkContext.getOrCreate(conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    if not os.environ.get("ODRADEK_DEBUG"):
        session.sparkContext.setLogLevel("FATAL")
        for name in LOUD:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return session


@contextlib.contextmanager
def _handler_kept() -> Iterator[None]:
    """Takes away PySpark's handler of SIGINT, which breaks off whatever runs."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _prepare_environment() -> None:
    """The Java that was found; workers run this Python; Spark listens on loopback; no other Spark is picked up."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if home := os.environ.get("SPARK_HOME"):
        raise PipelineError(
            f"SPARK_HOME is {home}, whose engine would run instead of PySpark's own", "unset SPARK_HOME"
        )


def _jars(spark_version: str, protobuf: bool) -> dict[str, str]:
    jars = find_jars(spark_version, protobuf=protobuf)
    if jars is None:
        return {"spark.jars.packages": packages(protobuf), "spark.jars.excludes": "org.apache.hadoop:*"}
    return {"spark.jars": ",".join(str(jar) for jar in jars)}

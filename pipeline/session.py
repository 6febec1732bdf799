"""The Spark session of a job, with the connector and everything that Spark gets wrong when it is left alone."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.jars import find_jars, packages
from pipeline.java import find_java
from pipeline.settings import Settings

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


def open_session(settings: Settings, extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session of a job, started unless the process has one. Raises PipelineError.

    `extra`: session settings that go over all others."""
    try:
        import pyspark
    except ImportError as error:
        raise PipelineError("PySpark is not installed", "pip install 'odradek[spark]'") from error
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        _prepare_environment()
    builder = SparkSession.builder.appName(f"odradek-{settings.name}").master(settings.master)
    jars = _jars(pyspark.__version__, settings.format == "protobuf")
    options = {**DEFAULTS, **jars, **settings.spark, **(extra or {})}
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not os.environ.get("ODRADEK_DEBUG"):
        # What these log as errors, with the traces of Java, ends the job too, which tells it in a line; and
        # kafka-python logs each of its attempts at a connection.
        session.sparkContext.setLogLevel("FATAL")
        for name in ("py4j", "kafka.net"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return session


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

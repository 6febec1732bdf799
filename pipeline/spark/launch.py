"""Starts Spark's Java process, with the options that the jobs need.

Precedence of options: the settings' (`[spark]`, and the caller's), REQUIRED, spark-defaults.conf, PREFERRED.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.home import spark_home
from odradek.pipeline.spark.jars import find_jars, packages
from odradek.pipeline.spark.java import find_java
from odradek.pipeline.spark.master import (
    HOST,
    LOCAL,
    LOOPBACK,
    as_host,
    check_master,
    driver_address,
    named_master,
    refuse_unknown_yarn,
    says_address,
)
from odradek.pipeline.spark.memory import OPTION, VARIABLE, planned_memory
from odradek.pipeline.spark.options import (
    SUBMIT_ARGUMENTS,
    default_options,
    default_options_file,
    in_environment,
    in_private_file,
)

AVRO_LIMITS = {
    f"org.apache.avro.limits.{what}.maxLength": str(limit)
    for what, limit in {"string": 64 << 20, "bytes": 64 << 20, "collectionItems": 4 << 20}.items()
}
"""Avro's reader allocates as much as a length field says: without limits ten bytes of garbage crash the JVM."""
PYTHON = "spark.pyspark.python"
JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")
REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Delta's; the default, INT96, has no statistics
}
"""Options that the rows depend on."""
PREFERRED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def launch(settings: Settings, wanted: Mapping[str, str]) -> dict[str, str]:
    """Starts the process and returns the options for its context. `wanted`: options that override all others.

    Raises PipelineError."""
    import pyspark
    from pyspark import SparkContext

    home = spark_home(pyspark.__version__) or Path(pyspark.__file__).parent
    defaults = default_options_file(home)
    there = default_options(defaults)
    options = _options(settings, wanted, there, pyspark.__version__)
    address = None if says_address(defaults.with_name("spark-env.sh")) else driver_address(options["spark.master"])
    if address is not None and address != LOOPBACK and HOST not in there:
        options.setdefault(HOST, as_host(address))  # Spark itself would use this machine's name for the address
    os.environ["JAVA_HOME"] = str(find_java(pyspark.__version__).home)
    # PySpark passes this to the executors; the option alone only affects spark-submit.
    os.environ["PYSPARK_PYTHON"] = {**there, **wanted}.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    with in_private_file(options, defaults), in_environment("SPARK_LOCAL_IP", address):
        SparkContext._ensure_initialized()  # without arguments, which other users could see
    return options


def _options(
    settings: Settings, wanted: Mapping[str, str], there: Mapping[str, str], spark_version: str
) -> dict[str, str]:
    """Returns the options that override `there`, those of spark-defaults.conf."""
    options = {"spark.app.name": f"odradek-{settings.name}", **missing_options(there), **wanted}
    options |= _jars(spark_version, {**there, **wanted})
    options["spark.master"] = _master(settings, {**there, **wanted})
    if OPTION not in {**there, **wanted} and not os.environ.get(VARIABLE):
        options[OPTION], _ = planned_memory(settings, there)
    return options


def missing_options(there: Mapping[str, str]) -> dict[str, str]:
    """Returns our options to add to the options `there`: REQUIRED, Java's, and those of PREFERRED that it lacks."""
    limits = " ".join(f"-D{name}={value}" for name, value in AVRO_LIMITS.items())
    java = {name: f"{there.get(name, '')} {limits}".strip() for name in JAVA_OPTIONS}
    return {**{name: value for name, value in PREFERRED.items() if name not in there}, **REQUIRED, **java}


def _master(settings: Settings, given: Mapping[str, str]) -> str:
    submitted = named_master(os.environ.get(SUBMIT_ARGUMENTS, ""))
    master = settings.master or submitted or given.get("spark.master") or LOCAL
    check_master(master)
    refuse_unknown_yarn(master)
    return master


def _jars(spark_version: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that name our jars, appended to the given ones."""
    jars = find_jars(spark_version)
    if jars is not None:
        ours = {"spark.jars": ",".join(str(jar) for jar in jars.paths)}
    else:
        ours = {"spark.jars.packages": packages(spark_version), "spark.jars.excludes": "org.apache.hadoop:*"}
    return {name: ",".join(filter(None, (given.get(name), value))) for name, value in ours.items()}


def packages_missing(spark_version: str) -> PipelineError:
    """Returns the error for a process without the jars, where only Ivy could have fetched them, at its start."""
    return PipelineError(
        "Spark runs without the connector's jars, and Maven is not installed to fetch them",
        f"pass them to spark-submit: --packages {packages(spark_version)}",
    )

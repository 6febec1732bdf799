"""Finds the Spark engine: PySpark's own, or that of SPARK_HOME, which must have the same version.

`spark-submit` sets SPARK_HOME for all processes that it starts, possibly to PySpark's own directory.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from odradek.pipeline.errors import PipelineError

CORE = "spark-core_2.13-"
REMEDY = "unset SPARK_HOME, or set it to a Spark of PySpark's version (Scala 2.13)"


def pyspark_version() -> str:
    """Returns the version of PySpark. Under spark-submit it may be part of the engine instead of an installed package.

    Raises PackageNotFoundError."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        if importlib.util.find_spec("pyspark") is None:
            raise
        import pyspark

        return str(pyspark.__version__)


def engine_version(home: Path) -> str | None:
    """Returns the version of the engine in a directory, from its jars or its file RELEASE. None without an engine."""
    jars = [path.name.removeprefix(CORE).removesuffix(".jar") for path in home.glob(f"jars/{CORE}*.jar")]
    if jars:
        return jars[0]
    try:
        found = re.match(r"Spark (\S+)", (home / "RELEASE").read_text())
    except OSError:
        return None
    return found[1] if found else None


def spark_home(pyspark: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the directory of SPARK_HOME, if set. Raises PipelineError unless its engine has the version `pyspark`."""
    named = environ.get("SPARK_HOME")
    if not named:
        return None
    found = engine_version(Path(named))
    if found is None:
        raise PipelineError(f"SPARK_HOME is {named}, which has no Spark for Scala 2.13", REMEDY)
    if found != pyspark:
        raise PipelineError(f"SPARK_HOME is {named}, whose engine is Spark {found}, but PySpark is {pyspark}", REMEDY)
    return Path(named)

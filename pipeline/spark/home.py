"""The engine that runs: PySpark's own, or that of SPARK_HOME where it is of the same version.

`spark-submit` sets SPARK_HOME in all that it starts, also to PySpark's own directory.
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
    """Of the installed PySpark. Under spark-submit it may be part of the engine, and no package of its own.

    Raises PackageNotFoundError."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        if importlib.util.find_spec("pyspark") is None:
            raise
        import pyspark

        return str(pyspark.__version__)


def engine_version(home: Path) -> str | None:
    """The version of the engine in a directory, as its jars say, or its file RELEASE; None where there is none."""
    jars = [path.name.removeprefix(CORE).removesuffix(".jar") for path in home.glob(f"jars/{CORE}*.jar")]
    if jars:
        return jars[0]
    try:
        said = re.match(r"Spark (\S+)", (home / "RELEASE").read_text())
    except OSError:
        return None
    return said[1] if said else None


def spark_home(pyspark: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The directory of SPARK_HOME, if set. Raises PipelineError unless its engine is of the version `pyspark`."""
    named = environ.get("SPARK_HOME")
    if not named:
        return None
    found = engine_version(Path(named))
    if found is None:
        raise PipelineError(f"SPARK_HOME is {named}, where no Spark of Scala 2.13 is", REMEDY)
    if found != pyspark:
        raise PipelineError(f"SPARK_HOME is {named}, whose engine is Spark {found}, but PySpark is {pyspark}", REMEDY)
    return Path(named)

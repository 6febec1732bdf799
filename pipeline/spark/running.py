"""Adapts to a Spark that is already running: spark-submit started its Java process, or the program has a context.

Its options are kept. Options of the settings must be in force or still take effect; if not, a PipelineError names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.memory import OPTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_LAUNCH = (
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.userClassPathFirst",
)
"""Options that the Java process reads when it starts."""
SUBMITTERS = ("spark.jars", "spark.submit.", "spark.kerberos.")
"""Prefixes of options that spark-submit itself processes."""
FILES = ("spark.jars", "spark.submit.pyFiles")
ALSO = {OPTION: f"{OPTION} (driver-memory)"}
"""Options that have a pipeline setting with another name."""


def refuse_late(wanted: Mapping[str, str], in_force: Mapping[str, str]) -> None:
    """Raises PipelineError if options are wanted that can no longer take effect in the running Java process."""
    late = {name: value for name, value in wanted.items() if name in AT_LAUNCH or name.startswith(SUBMITTERS)}
    _refuse(late, in_force.get, "Spark's Java process is running", "pass them to spark-submit (--conf NAME=VALUE)")


def apply(session: SparkSession, wanted: Mapping[str, str]) -> None:
    """Sets the options that a session can change. Raises PipelineError if another one differs from that in force."""
    fixed = {name: value for name, value in wanted.items() if not session.conf.isModifiable(name)}
    in_force = session.sparkContext.getConf()
    _refuse(fixed, in_force.get, "the Spark session is already open", "set them where it is opened")
    for name, value in wanted.items():
        if name not in fixed:
            session.conf.set(name, value)


def refuse_other_master(wanted: str, in_force: str) -> None:
    """Raises PipelineError if the open session has another master than the settings."""
    if wanted and wanted != in_force:
        raise PipelineError(
            f"master is {wanted}, but the Spark session is already open with {in_force}", "remove master"
        )


def _refuse(wanted: Mapping[str, str], in_force: Callable[[str], str | None], why: str, remedy: str) -> None:
    names = [ALSO.get(name, name) for name, value in wanted.items() if not _is_in_force(name, value, in_force(name))]
    if names:
        problem = f"[spark] {', '.join(names)} cannot take effect, because {why}"
        raise PipelineError(problem, f"{remedy}, or remove them")


def _is_in_force(name: str, wanted: str, found: str | None) -> bool:
    """Whether the value found is the one wanted. For files the names are compared, as Spark turns their paths into
    URLs. There may be more of Java's options than were wanted, as our own are added.
    """
    if name.startswith(FILES) and found is not None:
        return _file_names(wanted) <= _file_names(found)
    if name.endswith("JavaOptions") and found is not None:
        return set(wanted.split()) <= set(found.split())
    return found == wanted


def _file_names(paths: str) -> set[str]:
    return {PurePosixPath(path).name for path in paths.split(",") if path}


def given_jars(option: Callable[[str], str | None], directory: Path | None = None) -> list[str]:
    """Returns the jars that spark-submit was given. `option` returns an option in force. YARN has a separate option for
    them; if YARN also runs the driver, they are in the working directory of that process."""
    options = (option("spark.jars"), option("spark.yarn.dist.jars"))
    given = [path for paths in options for path in (paths or "").split(",") if path]
    if option("spark.master") == "yarn" and option("spark.submit.deployMode") == "cluster":
        given += [path.name for path in (directory or Path()).glob("*.jar")]
    return given


def is_there(jar: str, given: Sequence[str], home: Path) -> bool:
    """Whether the driver has a jar, in any patch release of its minor version: among the given ones (Ivy prefixes the
    name with the group), or in the engine's directory."""
    there = [*given, *(path.name for path in home.glob("jars/*.jar"))]
    minor = re.escape(jar.rpartition(".")[0].rpartition(".")[0])
    return any(re.search(rf"{minor}\.[^/]*\.jar$", path) for path in there)


def add_jars(session: SparkSession, jars: list[Path]) -> None:
    """Adds the jars to the driver, as `spark-submit --jars` does, and to the executors.

    SQL's ADD JAR adds them to a single thread of the driver only."""
    jvm: Any = session.sparkContext._jvm
    loader = _submits_loader(jvm)
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        session.sparkContext._jsc.addJar(str(jar))


def _submits_loader(jvm: Any) -> Any:
    """Returns the class loader that spark-submit gives to all threads. In some it is a parent of a session's loader."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and loader.getClass().getName() != "org.apache.spark.util.MutableURLClassLoader":
        loader = loader.getParent()
    if loader is None:
        raise PipelineError("Spark runs without the connector's jars", "pass them to spark-submit: --jars, --packages")
    return loader


def set_property(jvm: Any, name: str, value: str) -> None:
    """Sets a system property of the Java process, unless it is set already."""
    if jvm.java.lang.System.getProperty(name) is None:
        jvm.java.lang.System.setProperty(name, value)

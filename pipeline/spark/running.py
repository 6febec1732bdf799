"""A Spark that runs already: `spark-submit` has started its Java process, or the program its context.

Its options stay. What the settings ask for must take effect or be in force: else a PipelineError names it.
"""

from __future__ import annotations

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
"""Beginnings of options that spark-submit itself acts upon."""
FILES = ("spark.jars", "spark.submit.pyFiles")
ALSO = {OPTION: f"{OPTION} (driver-memory)"}
"""Options that are settings of another name too."""


def refuse_late(wanted: Mapping[str, str], in_force: Mapping[str, str]) -> None:
    """Raises PipelineError where options are wanted that the running Java process can no longer take."""
    late = {name: value for name, value in wanted.items() if name in AT_LAUNCH or name.startswith(SUBMITTERS)}
    _refuse(late, in_force.get, "Spark's Java process runs already", "give them to spark-submit (--conf NAME=VALUE)")


def apply(session: SparkSession, wanted: Mapping[str, str]) -> None:
    """Sets what a session may change. Raises PipelineError if another option is wanted than is in force."""
    fixed = {name: value for name, value in wanted.items() if not session.conf.isModifiable(name)}
    in_force = session.sparkContext.getConf()
    _refuse(fixed, in_force.get, "the Spark session is open already", "give them where it is opened")
    for name, value in wanted.items():
        if name not in fixed:
            session.conf.set(name, value)


def refuse_other_master(wanted: str, in_force: str) -> None:
    """Raises PipelineError if the session that is open has another master than the settings name."""
    if wanted and wanted != in_force:
        raise PipelineError(
            f"master is {wanted}, but the Spark session is open already with {in_force}", "leave master out"
        )


def _refuse(wanted: Mapping[str, str], in_force: Callable[[str], str | None], why: str, remedy: str) -> None:
    names = [ALSO.get(name, name) for name, value in wanted.items() if not _is_in_force(name, value, in_force(name))]
    if names:
        problem = f"[spark] {', '.join(names)} cannot take effect, because {why}"
        raise PipelineError(problem, f"{remedy}, or leave them out")


def _is_in_force(name: str, wanted: str, found: str | None) -> bool:
    """Whether the value found is the one wanted. Of files the names are compared: Spark makes URLs of their paths.
    Java's options may be more than were wanted: our own are put to them.
    """
    if name.startswith(FILES) and found is not None:
        return _file_names(wanted) <= _file_names(found)
    if name.endswith("JavaOptions") and found is not None:
        return set(wanted.split()) <= set(found.split())
    return found == wanted


def _file_names(paths: str) -> set[str]:
    return {PurePosixPath(path).name for path in paths.split(",") if path}


def given_jars(option: Callable[[str], str | None], directory: Path | None = None) -> list[str]:
    """The jars that spark-submit was given. `option` returns an option in force. YARN has an option of its own for
    them; where it runs the driver too, they lie in the directory of that process."""
    options = (option("spark.jars"), option("spark.yarn.dist.jars"))
    given = [path for paths in options for path in (paths or "").split(",") if path]
    if option("spark.master") == "yarn" and option("spark.submit.deployMode") == "cluster":
        given += [path.name for path in (directory or Path()).glob("*.jar")]
    return given


def is_there(jar: str, given: Sequence[str], home: Path) -> bool:
    """Whether the driver has a jar: among those given, where Ivy puts the group before its name, or in the engine's own
    directory."""
    return any(path.endswith(jar) for path in given) or (home / "jars" / jar).is_file()


def add_jars(session: SparkSession, jars: list[Path]) -> None:
    """Gives the jars to the driver, as `spark-submit --jars` does, and to the executors.

    SQL's ADD JAR gives them to one thread of the driver only."""
    jvm: Any = session.sparkContext._jvm
    loader = _submits_loader(jvm)
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        session.sparkContext._jsc.addJar(str(jar))


def _submits_loader(jvm: Any) -> Any:
    """The class loader that spark-submit gives to all threads; a session's own stands before it in some."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and loader.getClass().getName() != "org.apache.spark.util.MutableURLClassLoader":
        loader = loader.getParent()
    if loader is None:
        raise PipelineError("Spark runs without the connector's jars", "give them to spark-submit: --jars, --packages")
    return loader


def set_property(jvm: Any, name: str, value: str) -> None:
    """A property of the Java process that nobody has set."""
    if jvm.java.lang.System.getProperty(name) is None:
        jvm.java.lang.System.setProperty(name, value)

"""Finds the jars that PySpark does not ship, or fetches them once with Maven: four of the Kafka connector, and Avro's.

Search order: the directory of ODRADEK_SPARK_JARS; the cache, by PySpark's version; `mvn` with the pom.xml next to this
file, into the cache. Without Maven, Spark's own Ivy fetches the jars when the session starts. In each place the jars of
PySpark's own version come before those that serve its minor version (releases.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree  # nosec B405

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.cache import cache_directory
from odradek.pipeline.spark.releases import Jars, fitting_jars, release_of

POM = files(__package__) / "pom.xml"
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
_LACKING = re.compile(r"Could not find artifact|was not found in")
"""What Maven says of a jar that a repository does not have. The second is its memory of the first."""


@dataclass(frozen=True, slots=True)
class FoundJars:
    """The jars, all of one directory, and the Spark release that their versions belong to."""

    paths: list[Path]
    spark: str


def jar_names(jars: Jars, pom: Traversable = POM) -> list[str]:
    """Returns the file names of the pom's dependencies: artifact-version.jar."""
    return [f"{artifact}-{version}.jar" for _, artifact, version in _dependencies(jars, pom)]


def packages(pyspark: str) -> str:
    """Returns the packages for Spark's Ivy: group:artifact:version of Spark's own jars, separated by commas.

    They serve the minor version: Ivy would end the start if PySpark's own version has none. Raises PipelineError."""
    jars = release_of(pyspark).jars
    return ",".join(":".join(one) for one in _dependencies(jars) if one[0] == "org.apache.spark")


def _properties(jars: Jars) -> dict[str, str]:
    return {
        "spark.version": jars.spark,
        "kafka.version": jars.kafka_clients,
        "commons-pool2.version": jars.commons_pool2,
    }


def _dependencies(jars: Jars, pom: Traversable = POM) -> Iterator[tuple[str, str, str]]:
    """Yields group, artifact and version of each dependency."""
    root = ElementTree.fromstring(pom.read_bytes())  # nosec B314 # a file of this package
    versions = {f"${{{name}}}": version for name, version in _properties(jars).items()}
    for one in root.iterfind(f"{_NAMESPACE}dependencies/{_NAMESPACE}dependency"):
        group, artifact, version = (
            one.findtext(f"{_NAMESPACE}{name}", "") for name in ("groupId", "artifactId", "version")
        )
        yield group, artifact, versions[version]


def find_jars(pyspark: str, environ: Mapping[str, str] = os.environ) -> FoundJars | None:
    """Returns the jars, fetched if needed; None if only Ivy can fetch them. Raises PipelineError."""
    fitting = fitting_jars(pyspark)
    if own := environ.get("ODRADEK_SPARK_JARS"):
        return _there(Path(own), fitting) or _refuse_incomplete(Path(own), fitting[-1])
    directory = cache_directory(environ) / f"spark-{pyspark}"
    if found := _there(directory, fitting):
        return found
    maven = shutil.which("mvn", path=environ.get("PATH"))
    if maven is None:
        return None
    _fetch_first(maven, directory, fitting)
    return _there(directory, fitting) or _refuse_incomplete(directory, fitting[-1])


def _there(directory: Path, fitting: list[Jars]) -> FoundJars | None:
    """Returns the first of the fitting jars of which the directory has all that are required."""
    for jars in fitting:
        names = jar_names(jars)
        if not _missing(directory, names):
            return FoundJars([directory / name for name in names], jars.spark)
    return None


def _missing(directory: Path, names: list[str]) -> list[str]:
    return [name for name in names if not (directory / name).is_file()]


def _refuse_incomplete(directory: Path, jars: Jars) -> NoReturn:
    """Raises PipelineError."""
    missing = _missing(directory, jar_names(jars))
    raise PipelineError(f"{directory} lacks {', '.join(missing)}", "put the jars there")


def _fetch_first(maven: str, cache: Path, fitting: list[Jars]) -> None:
    """Fetches the first of the fitting jars of which the repository has all. Raises PipelineError."""
    complaint = ""
    for jars in fitting:
        output = _fetch(maven, cache, jars)
        if output is None:
            return
        complaint = _complaint(output)
        if not _LACKING.search(output):
            break
    raise PipelineError(
        f"Maven could not fetch the jars: {complaint}",
        "check the network, or set ODRADEK_SPARK_JARS to a directory that has them",
    )


def _fetch(maven: str, cache: Path, jars: Jars) -> str | None:
    """Runs Maven in a directory next to the cache, then moves the complete jars into the cache. Other processes may use
    the cache in the meantime. Returns Maven's output if it fails.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as scratch, as_file(POM) as pom:
        command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={scratch}/jars"]
        command += [f"-D{name}={version}" for name, version in _properties(jars).items()]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stdout + done.stderr
        for jar in Path(scratch, "jars").iterdir():
            os.replace(jar, cache / jar.name)
    return None


def _complaint(output: str) -> str:
    """Returns the first error in Maven's output. Later ones are hints on how to run Maven."""
    errors = [line.partition("[ERROR]")[2].strip() for line in output.splitlines() if "[ERROR]" in line]
    return next((line for line in errors if line), "no reason given")

"""Finds the jars that PySpark does not ship, or fetches them once with Maven: four of the Kafka connector, and Avro's.
Protobuf's jar is only fetched when it is needed.

Search order: the directory of ODRADEK_SPARK_JARS; the cache, by PySpark's version; `mvn` with the pom.xml next to this
file, into the cache. Without Maven, Spark's own Ivy fetches the jars when the session starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from xml.etree import ElementTree

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.cache import cache_directory

POM = files(__package__) / "pom.xml"
PROTOBUF = "protobuf"
"""The profile in the pom."""
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"


def jar_names(pom: Traversable = POM, profile: str = "") -> list[str]:
    """Returns the file names of the pom's dependencies, or of those that a profile adds: artifact-version.jar."""
    return [f"{artifact}-{version}.jar" for _, artifact, version in _dependencies(pom, profile)]


def packages(protobuf: bool) -> str:
    """Returns the packages for Spark's Ivy: group:artifact:version of Spark's own jars, separated by commas."""
    wanted = [*_dependencies(POM), *(_dependencies(POM, PROTOBUF) if protobuf else [])]
    return ",".join(":".join(one) for one in wanted if one[0] == "org.apache.spark")


def _dependencies(pom: Traversable, profile: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields group, artifact and version of each dependency, with properties resolved."""
    root = ElementTree.fromstring(pom.read_bytes())
    properties = {
        one.tag.removeprefix(_NAMESPACE): (one.text or "").strip() for one in root.find(f"{_NAMESPACE}properties") or ()
    }
    profiles = {one.findtext(f"{_NAMESPACE}id"): one for one in root.iter(f"{_NAMESPACE}profile")}
    for one in (profiles[profile] if profile else root).iterfind(f"{_NAMESPACE}dependencies/{_NAMESPACE}dependency"):
        group, artifact, version = (
            one.findtext(f"{_NAMESPACE}{name}", "") for name in ("groupId", "artifactId", "version")
        )
        while version.startswith("${"):
            version = properties[version[2:-1]]
        yield group, artifact, version


def find_jars(spark_version: str, environ: Mapping[str, str] = os.environ, protobuf: bool = False) -> list[Path] | None:
    """Returns the jars, fetched if needed; None if only Ivy can fetch them. `protobuf`: Protobuf's jar is required;
    otherwise it is included if it exists. Raises PipelineError."""
    names, extra = jar_names(), jar_names(profile=PROTOBUF)
    if f"spark-sql-kafka-0-10_2.13-{spark_version}.jar" not in names:
        raise PipelineError(
            f"PySpark is {spark_version}, but the connector's jars are {names[0]}",
            "install the pyspark version of pyproject.toml: pip install 'odradek[spark]'",
        )
    wanted = [*names, *(extra if protobuf else [])]
    own = environ.get("ODRADEK_SPARK_JARS")
    directory = Path(own) if own else cache_directory(environ) / f"spark-{spark_version}"
    if _missing(directory, wanted) and not own:
        maven = shutil.which("mvn", path=environ.get("PATH"))
        if maven is None:
            return None
        _fetch(maven, directory, protobuf)
    if missing := _missing(directory, wanted):
        raise PipelineError(f"{directory} lacks {', '.join(missing)}", "put the jars there")
    return [directory / name for name in [*names, *extra] if (directory / name).is_file()]


def _missing(directory: Path, names: list[str]) -> list[str]:
    return [name for name in names if not (directory / name).is_file()]


def _fetch(maven: str, cache: Path, protobuf: bool) -> None:
    """Runs Maven in a directory next to the cache, then moves the complete jars into the cache. Other processes may use
    the cache in the meantime.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as scratch, as_file(POM) as pom:
        command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={scratch}/jars", *([f"-P{PROTOBUF}"] if protobuf else [])]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise PipelineError(
                f"Maven could not fetch the jars: {_complaint(done.stdout + done.stderr)}",
                "check the network, or set ODRADEK_SPARK_JARS to a directory that has them",
            )
        for jar in Path(scratch, "jars").iterdir():
            os.replace(jar, cache / jar.name)


def _complaint(output: str) -> str:
    """Returns the first error in Maven's output. Later ones are hints on how to run Maven."""
    errors = [line.partition("[ERROR]")[2].strip() for line in output.splitlines() if "[ERROR]" in line]
    return next((line for line in errors if line), "no reason given")

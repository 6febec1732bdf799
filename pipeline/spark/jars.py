"""The jars that PySpark does not ship, found, or fetched once with Maven: four of the Kafka connector, and Avro's.
Protobuf's is fetched when it is asked for.

Looked for in this order: the directory of ODRADEK_SPARK_JARS; the cache, by PySpark's version; `mvn` with the pom.xml
beside this file, into the cache. Where there is no Maven, Spark's own Ivy fetches them when the session starts.
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
"""The profile of the pom."""
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"


def jar_names(pom: Traversable = POM, profile: str = "") -> list[str]:
    """The files that the pom asks for, or that a profile of it asks for besides: artifact-version.jar."""
    return [f"{artifact}-{version}.jar" for _, artifact, version in _dependencies(pom, profile)]


def packages(protobuf: bool) -> str:
    """What Spark's Ivy is told to fetch: group:artifact:version with commas between, of Spark's own jars."""
    wanted = [*_dependencies(POM), *(_dependencies(POM, PROTOBUF) if protobuf else [])]
    return ",".join(":".join(one) for one in wanted if one[0] == "org.apache.spark")


def _dependencies(pom: Traversable, profile: str = "") -> Iterator[tuple[str, str, str]]:
    """Group, artifact and version of each, properties resolved."""
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
    """The jars, fetched if need be; None when only Ivy can. `protobuf`: that one must be among them; else it is when it
    is there. Raises PipelineError."""
    names, extra = jar_names(), jar_names(profile=PROTOBUF)
    if f"spark-sql-kafka-0-10_2.13-{spark_version}.jar" not in names:
        raise PipelineError(
            f"PySpark is {spark_version}, but the connector's jars are {names[0]}",
            "install the pyspark that pyproject.toml names: pip install 'odradek[spark]'",
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
    """Runs Maven beside the cache and moves each jar there when it is whole. Others may use the cache meanwhile."""
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
    """Of what Maven says the first error; what follows are hints on how to run Maven."""
    errors = [line.partition("[ERROR]")[2].strip() for line in output.splitlines() if "[ERROR]" in line]
    return next((line for line in errors if line), "it does not say why")

"""The four jars of Spark's Kafka connector, which PySpark does not ship: found, or fetched once with Maven.

Looked for in this order: the directory of ODRADEK_SPARK_JARS; the cache, by PySpark's version; `mvn` with the pom.xml
beside this file, into the cache. Where there is no Maven, Spark's own Ivy fetches them when the session starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from pipeline.errors import PipelineError

POM = Path(__file__).with_name("pom.xml")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"


def jar_names(pom: Path = POM) -> list[str]:
    """The files that the pom asks for: artifact-version.jar, its properties resolved."""
    root = ElementTree.parse(pom).getroot()
    properties = {
        one.tag.removeprefix(_NAMESPACE): (one.text or "").strip() for one in root.find(f"{_NAMESPACE}properties") or ()
    }
    names = []
    for dependency in root.iter(f"{_NAMESPACE}dependency"):
        artifact = dependency.findtext(f"{_NAMESPACE}artifactId", "")
        version = dependency.findtext(f"{_NAMESPACE}version", "")
        while version.startswith("${"):
            version = properties[version[2:-1]]
        names.append(f"{artifact}-{version}.jar")
    return names


def cache_directory(environ: Mapping[str, str], spark_version: str) -> Path:
    """Where fetched jars stay."""
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "odradek" / f"spark-{spark_version}"


def find_jars(spark_version: str, environ: Mapping[str, str] = os.environ) -> list[Path] | None:
    """The four jars, fetched if need be; None when only Ivy can. Raises PipelineError."""
    names = jar_names()
    if f"spark-sql-kafka-0-10_2.13-{spark_version}.jar" not in names:
        raise PipelineError(
            f"PySpark is {spark_version}, but the connector's jars are {names[0]}",
            "install the pyspark that pyproject.toml names: pip install 'odradek[spark]'",
        )
    if own := environ.get("ODRADEK_SPARK_JARS"):
        return _all_of(Path(own), names)
    cache = cache_directory(environ, spark_version)
    if all((cache / name).is_file() for name in names):
        return [cache / name for name in names]
    maven = shutil.which("mvn", path=environ.get("PATH"))
    if maven is None:
        return None
    _fetch(maven, cache)
    return _all_of(cache, names)


def _all_of(directory: Path, names: list[str]) -> list[Path]:
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise PipelineError(f"{directory} lacks {', '.join(missing)}", "delete it, or put the jars there")
    return [directory / name for name in names]


def _fetch(maven: str, cache: Path) -> None:
    """Runs Maven beside the cache and moves the result there, whole or not at all."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as scratch:
        command = [maven, "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={scratch}/jars"], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it says nothing"]
            raise PipelineError(
                f"Maven could not fetch the connector's jars: {last[0]}", "check the network, or set ODRADEK_SPARK_JARS"
            )
        if cache.exists():
            shutil.rmtree(cache)
        os.replace(Path(scratch) / "jars", cache)

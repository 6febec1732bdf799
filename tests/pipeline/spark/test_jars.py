"""The jars: named by the pom, taken from a directory, from the cache, or from Maven."""

import os
import stat
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.cache import cache_directory
from odradek.pipeline.spark.jars import PROTOBUF, find_jars, jar_names, packages

VERSION = "4.0.0"


def put(directory: Path, names: list[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"jar")


def maven(directory: Path, script: str) -> dict[str, str]:
    """An environment in which `mvn` is a script, and the cache is empty."""
    program = directory / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(directory / "cache")}


FETCHES = """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
mkdir -p "$out"
"""


def test_the_pom_names_the_four_jars_of_the_connector_and_that_of_avro() -> None:
    assert jar_names() == [
        "spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
        "kafka-clients-3.9.0.jar",
        "commons-pool2-2.12.0.jar",
        "spark-avro_2.13-4.0.0.jar",
    ]
    assert jar_names(profile=PROTOBUF) == ["spark-protobuf_2.13-4.0.0.jar"]


def test_ivy_gets_sparks_own_jars_and_resolves_the_others() -> None:
    kafka = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    assert packages(protobuf=False).split(",") == [
        kafka,
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.spark:spark-avro_2.13:4.0.0",
    ]
    assert packages(protobuf=True).endswith(",org.apache.spark:spark-protobuf_2.13:4.0.0")


def test_a_jar_directory_must_have_all_jars(tmp_path: Path) -> None:
    environ = {"ODRADEK_SPARK_JARS": str(tmp_path)}
    put(tmp_path, jar_names()[1:])
    with pytest.raises(PipelineError, match="lacks spark-sql-kafka"):
        find_jars(VERSION, environ)
    put(tmp_path, jar_names())
    assert find_jars(VERSION, environ) == [tmp_path / name for name in jar_names()]
    with pytest.raises(PipelineError, match="lacks spark-protobuf"):
        find_jars(VERSION, environ, protobuf=True)


def test_the_protobuf_jar_is_used_if_present(tmp_path: Path) -> None:
    names = [*jar_names(), *jar_names(profile=PROTOBUF)]
    put(tmp_path, names)
    assert find_jars(VERSION, {"ODRADEK_SPARK_JARS": str(tmp_path)}) == [tmp_path / name for name in names]


def test_maven_adds_missing_jars_to_an_older_cache_and_keeps_the_others(tmp_path: Path) -> None:
    new = jar_names()[-1]
    environ = maven(tmp_path, FETCHES + f'echo new > "$out/{new}"')
    cache = cache_directory(environ) / f"spark-{VERSION}"
    put(cache, jar_names()[:-1])
    (cache / "another.jar").touch()
    assert find_jars(VERSION, environ) == [cache / name for name in jar_names()]
    assert (cache / new).read_text() == "new\n"
    assert (cache / "another.jar").exists()
    assert find_jars(VERSION, environ | {"PATH": ""}) is not None, "the second time no Maven is needed"


def test_mavens_error_is_reported(tmp_path: Path) -> None:
    environ = maven(tmp_path, 'echo "[ERROR] "; echo "[ERROR] no route to host"; echo "[ERROR] [Help 1]"; exit 1')
    with pytest.raises(PipelineError, match="could not fetch the jars: no route to host; check the network"):
        find_jars(VERSION, environ)


def test_without_maven_ivy_is_used(tmp_path: Path) -> None:
    assert find_jars(VERSION, {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}) is None


def test_another_pyspark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"PySpark is 4\.2\.0, but the connector's jars are .*4\.0\.0"):
        find_jars("4.2.0", {"ODRADEK_SPARK_JARS": str(tmp_path)})

"""The jars: named by the pom, taken from a directory, from the cache, or from Maven."""

import os
import stat
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.cache import cache_directory
from odradek.pipeline.spark.jars import FoundJars, find_jars, jar_names, packages
from odradek.pipeline.spark.releases import Jars

VERSION, SERVING = "4.0.5", "4.0.0"
"""A patch release, and the one whose jars serve its minor version."""
OWN, THEIRS = (Jars(spark, "3.9.0", "2.12.0") for spark in (VERSION, SERVING))
NAMES = jar_names(THEIRS)


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


ARGUMENTS = """
for argument in "$@"; do case "$argument" in
    -DoutputDirectory=*) out="${argument#*=}";;
    -Dspark.version=*) spark="${argument#*=}";;
esac; done
echo "$spark" >> "$(dirname "$0")/asked"
mkdir -p "$out"
"""
FETCHES = ARGUMENTS + "\n".join(f'touch "$out/{name}"' for name in NAMES).replace(SERVING, "$spark")
LACKS = ARGUMENTS + 'echo "[ERROR] Could not find artifact org.apache.spark:spark-avro_2.13:jar:$spark"; exit 1'


def asked(directory: Path) -> list[str]:
    """The Spark versions whose jars `mvn` was asked for."""
    return (directory / "bin" / "asked").read_text().split()


def test_the_pom_names_the_four_jars_of_the_connector_and_that_of_avro() -> None:
    assert NAMES == [
        "spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
        "kafka-clients-3.9.0.jar",
        "commons-pool2-2.12.0.jar",
        "spark-avro_2.13-4.0.0.jar",
    ]


def test_ivy_gets_sparks_own_jars_of_the_minor_version_and_resolves_the_others() -> None:
    kafka = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    assert packages(VERSION).split(",") == [
        kafka,
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.spark:spark-avro_2.13:4.0.0",
    ]


def test_a_jar_directory_must_have_all_jars(tmp_path: Path) -> None:
    environ = {"ODRADEK_SPARK_JARS": str(tmp_path)}
    put(tmp_path, NAMES[1:])
    with pytest.raises(PipelineError, match="lacks spark-sql-kafka"):
        find_jars(VERSION, environ)
    put(tmp_path, NAMES)
    assert find_jars(VERSION, environ) == FoundJars([tmp_path / name for name in NAMES], SERVING)


def test_pysparks_own_jars_come_before_those_of_its_minor_version(tmp_path: Path) -> None:
    put(tmp_path, [*NAMES, *jar_names(OWN)])
    found = find_jars(VERSION, {"ODRADEK_SPARK_JARS": str(tmp_path)})
    assert found == FoundJars([tmp_path / name for name in jar_names(OWN)], VERSION)


def test_jars_of_two_releases_are_not_mixed(tmp_path: Path) -> None:
    put(tmp_path, [*NAMES[:1], *jar_names(OWN)[1:]])
    with pytest.raises(PipelineError, match=r"lacks spark-token-provider-kafka-0-10_2\.13-4\.0\.0\.jar, spark-avro"):
        find_jars(VERSION, {"ODRADEK_SPARK_JARS": str(tmp_path)})


def test_maven_fetches_pysparks_own_jars(tmp_path: Path) -> None:
    environ = maven(tmp_path, FETCHES)
    cache = cache_directory(environ) / f"spark-{VERSION}"
    assert find_jars(VERSION, environ) == FoundJars([cache / name for name in jar_names(OWN)], VERSION)
    assert asked(tmp_path) == [VERSION]


def test_maven_fetches_those_of_the_minor_version_where_pyspark_has_no_own(tmp_path: Path) -> None:
    environ = maven(tmp_path, f'case "$*" in *-Dspark.version={VERSION}*) {LACKS};; *) {FETCHES};; esac')
    cache = cache_directory(environ) / f"spark-{VERSION}"
    assert find_jars(VERSION, environ) == FoundJars([cache / name for name in NAMES], SERVING)
    assert find_jars(VERSION, environ) is not None
    assert asked(tmp_path) == [VERSION, SERVING], "once"


def test_a_repository_without_any_of_them_is_reported(tmp_path: Path) -> None:
    environ = maven(tmp_path, LACKS)
    with pytest.raises(PipelineError, match=r"could not fetch the jars: Could not find .*:4\.0\.0; check the network"):
        find_jars(VERSION, environ)


def test_maven_adds_missing_jars_to_an_older_cache_and_keeps_the_others(tmp_path: Path) -> None:
    new = NAMES[-1]
    environ = maven(tmp_path, ARGUMENTS + f'echo new > "$out/{new}"')
    cache = cache_directory(environ) / f"spark-{SERVING}"
    put(cache, NAMES[:-1])
    (cache / "another.jar").touch()
    assert find_jars(SERVING, environ) == FoundJars([cache / name for name in NAMES], SERVING)
    assert (cache / new).read_text() == "new\n"
    assert (cache / "another.jar").exists()
    assert find_jars(SERVING, environ | {"PATH": ""}) is not None, "the second time no Maven is needed"


def test_mavens_error_is_reported_and_is_no_reason_for_other_jars(tmp_path: Path) -> None:
    environ = maven(tmp_path, ARGUMENTS + 'echo "[ERROR] "; echo "[ERROR] no route to host"; echo "[ERROR] 1"; exit 1')
    with pytest.raises(PipelineError, match="could not fetch the jars: no route to host; check the network"):
        find_jars(VERSION, environ)
    assert asked(tmp_path) == [VERSION]


def test_without_maven_ivy_is_used(tmp_path: Path) -> None:
    assert find_jars(VERSION, {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}) is None

"""The releases of Spark: the jars of each belong together, and pip takes no PySpark that is not among them."""

import re
import tomllib
import zipfile
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.home import engine_version
from odradek.pipeline.spark.jars import find_jars
from odradek.pipeline.spark.releases import RELEASES, fitting_jars, release_of

ROOT = Path(__file__).resolve().parents[3]


def test_the_connector_was_built_with_the_versions_of_its_release() -> None:
    found = find_jars(pyspark.__version__)
    assert found is not None
    jars = next(one for one in fitting_jars(pyspark.__version__) if one.spark == found.spark)
    with zipfile.ZipFile(found.paths[0]) as connector:
        text = connector.read("META-INF/DEPENDENCIES").decode()
    built_with = dict(re.findall(r"org\.apache\.\w+:([\w.-]+):jar:(\S+)", text))
    assert built_with["spark-token-provider-kafka-0-10_2.13"] == jars.spark
    if found.spark == release_of(pyspark.__version__).jars.spark:
        assert (built_with["kafka-clients"], built_with["commons-pool2"]) == (jars.kafka_clients, jars.commons_pool2)


def test_the_engine_has_pysparks_version_and_none_of_the_jars() -> None:
    home = Path(pyspark.__file__).parent
    assert engine_version(home) == pyspark.__version__
    there = {path.name for path in (home / "jars").iterdir()}
    found = find_jars(pyspark.__version__)
    assert found is not None
    assert there.isdisjoint(path.name for path in found.paths)


def test_pip_takes_the_releases_that_have_a_connector_and_no_others() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    taken = next(one for line in extras["spark"] if (one := Requirement(line)).name == "pyspark").specifier
    minors = [f"{major}.{minor}" for major in (3, 4, 5) for minor in range(10)]
    assert [minor for minor in minors if f"{minor}.0" in taken] == list(RELEASES)
    assert [minor for minor in minors if f"{minor}.9" in taken] == list(RELEASES)


@pytest.mark.parametrize("version", ["3.5.9", "4.3.0", "4.20.0", "5.0.0", "unknown"])
def test_a_pyspark_without_a_connector_is_refused_with_a_remedy(version: str) -> None:
    message = rf"PySpark is {version}, but there is a Kafka connector for Spark 4\.0, .* only; .*pip install 'odradek"
    with pytest.raises(PipelineError, match=message):
        release_of(version)


def test_a_development_version_counts_to_its_minor_version() -> None:
    assert release_of("4.0.1.dev0") is RELEASES["4.0"]

"""SPARK_HOME is used if its engine has PySpark's version."""

from pathlib import Path

import pyspark
import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.home import pyspark_version, spark_home


def engine(home: Path, version: str) -> dict[str, str]:
    (home / "jars").mkdir()
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return {"SPARK_HOME": str(home)}


def test_without_spark_home_pysparks_own_engine_runs() -> None:
    assert spark_home("4.0.0", {}) is None


def test_pysparks_own_directory_is_a_valid_spark_home() -> None:
    own = Path(pyspark.__file__).parent
    assert spark_home(pyspark_version(), {"SPARK_HOME": str(own)}) == own


def test_an_engine_of_the_same_version_is_used(tmp_path: Path) -> None:
    assert spark_home("4.0.0", engine(tmp_path, "4.0.0")) == tmp_path


def test_the_release_file_gives_the_version_if_no_jar_does(tmp_path: Path) -> None:
    (tmp_path / "RELEASE").write_text("Spark 4.0.0 (git revision fa33ea0) built for Hadoop 3.4.1\nBuild flags: -B\n")
    assert spark_home("4.0.0", {"SPARK_HOME": str(tmp_path)}) == tmp_path


def test_an_engine_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"whose engine is Spark 3\.5\.1, but PySpark is 4\.0\.0; unset SPARK_HOME"):
        spark_home("4.0.0", engine(tmp_path, "3.5.1"))


def test_a_directory_without_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"which has no Spark for Scala 2\.13"):
        spark_home("4.0.0", {"SPARK_HOME": str(tmp_path)})

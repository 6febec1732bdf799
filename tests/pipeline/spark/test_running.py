"""Options that a running Spark can still apply, and those that it has."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.running import given_jars, is_there, refuse_late, set_property


@pytest.mark.parametrize(
    "name", ["spark.driver.memory", "spark.driver.extraClassPath", "spark.jars.packages", "spark.submit.pyFiles"]
)
def test_options_of_a_java_start_are_refused_by_name(name: str) -> None:
    with pytest.raises(PipelineError, match=rf"\[spark\] {name} .*cannot take effect.*pass them to spark-submit"):
        refuse_late({name: "2g", "spark.executor.memory": "2g"}, {name: "1g"})


def test_an_option_that_already_has_its_value_is_accepted() -> None:
    refuse_late({"spark.driver.memory": "2g"}, {"spark.driver.memory": "2g"})
    refuse_late({"spark.jars": "/own/a.jar"}, {"spark.jars": "file:///own/a.jar,file:///cache/b.jar"})
    with pytest.raises(PipelineError, match=r"spark\.jars cannot take effect"):
        refuse_late({"spark.jars": "/own/c.jar"}, {"spark.jars": "file:///own/a.jar,file:///cache/b.jar"})


def test_a_jar_is_found_under_ivys_name_or_in_the_engine(tmp_path: Path) -> None:
    jar = "spark-avro_2.13-4.0.0.jar"
    assert is_there(jar, ["file:///a/b.jar", f"file:///ivy/org.apache.spark_{jar}"], tmp_path)
    assert is_there(jar, ["file:///a/spark-avro_2.13-4.0.5.jar"], tmp_path), "of another patch release"
    assert not is_there(jar, ["file:///ivy/spark-avro_2.13-4.1.0.jar"], tmp_path)
    assert not is_there(jar, ["file:///own/my-spark-avro_2.13-4.0.0.jar/other.jar"], tmp_path)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / jar).touch()
    assert is_there(jar, [], tmp_path)


def test_the_jars_that_spark_submit_was_given_are_found_also_on_yarn(tmp_path: Path) -> None:
    (tmp_path / "org.apache.spark_b.jar").touch()
    options = {"spark.jars": "/own/a.jar", "spark.master": "spark://a:7077", "spark.submit.deployMode": "cluster"}
    assert given_jars(options.get, tmp_path) == ["/own/a.jar"]
    options = {"spark.yarn.dist.jars": "file:/own/a.jar,file:/own/c.jar", "spark.master": "yarn"}
    assert given_jars(options.get, tmp_path) == ["file:/own/a.jar", "file:/own/c.jar"]
    options = {"spark.master": "yarn", "spark.submit.deployMode": "cluster"}
    assert given_jars(options.get, tmp_path) == ["org.apache.spark_b.jar"]


def test_a_property_that_is_already_set_is_kept(spark: SparkSession) -> None:
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    set_property(spark.sparkContext._jvm, "odradek.test", "first")
    set_property(spark.sparkContext._jvm, "odradek.test", "second")
    assert system.getProperty("odradek.test") == "first"

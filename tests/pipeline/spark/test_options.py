"""spark-defaults.conf is read as Spark reads it."""

from pathlib import Path

from odradek.pipeline.spark.options import default_options, properties

LINES = r"""
# a comment
! another
spark.master            spark://a:7077
spark.driver.memory=2g
  spark.ui.enabled : true
spark.driver.extraJavaOptions -Da=b -Dc\=d
"""


def test_names_and_values_are_separated_by_blanks_or_a_sign(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(LINES)
    assert default_options(file) == {
        "spark.master": "spark://a:7077",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "true",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
    }
    assert default_options(tmp_path / "none") == {}


def test_written_options_are_read_back(tmp_path: Path) -> None:
    options = {"spark.hadoop.fs.s3a.secret.key": r"s3cr3t=a\b:#!ü", "spark.jars": "/a b/c.jar,/d.jar"}
    (tmp_path / "file").write_text(properties(options))
    assert default_options(tmp_path / "file") == options

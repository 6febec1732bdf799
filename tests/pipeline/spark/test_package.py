"""The archive of our code that is sent to the executors."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from odradek.pipeline.segments.worker_imports import spare_archives
from odradek.pipeline.spark.package import package_archive, ship_package

IMPORTS_ALL = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib, pkgutil
import odradek.pipeline
assert sys.argv[1] in odradek.pipeline.__file__
for one in pkgutil.walk_packages(odradek.pipeline.__path__, "odradek.pipeline."):
    if not one.name.endswith("__main__"):
        importlib.import_module(one.name)
from odradek.pipeline.spark.jars import packages
from odradek.pipeline.spark.package import package_archive
assert packages("4.0.0")
sys.stdout.buffer.write(package_archive())
"""


def test_the_archive_has_every_import_of_the_pipeline_and_can_rebuild_itself(tmp_path: Path) -> None:
    archive = tmp_path / "odradek.zip"
    archive.write_bytes(package_archive())
    command = [sys.executable, "-c", IMPORTS_ALL, str(archive)]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert again.returncode == 0, again.stderr.decode()
    assert again.stdout == archive.read_bytes()


def test_the_archive_has_only_what_executors_need() -> None:
    content = package_archive()
    packages = {name.split("/")[1] for name in zipfile.ZipFile(io.BytesIO(content)).namelist()}
    assert packages == {"__init__.py", "pipeline", "protocol"}
    assert len(content) < 1 << 20


def test_a_pipeline_function_is_pickled_by_name() -> None:
    """Executors therefore need its module; a function of a script is pickled by value."""
    assert b"odradek.pipeline.segments.worker_imports" in cloudpickle.dumps(spare_archives)
    assert len(cloudpickle.dumps(spare_archives)) < 200


def test_a_local_master_gets_no_archive(spark: SparkSession) -> None:
    before = spark.sparkContext.listFiles
    ship_package(spark)
    assert spark.sparkContext.listFiles == before

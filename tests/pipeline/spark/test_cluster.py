"""On a cluster whose Python lacks odradek, our code is sent there, with and without spark-submit."""

import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer

import odradek
from odradek.testing import BrokerThread
from tests.pipeline.conftest import QUICK_SPARK
from tests.pipeline.standalone_cluster import standalone_cluster

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
OPTIONS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_SPARK,
    "spark.sql.shuffle.partitions": "2",
}
LOOKS = """
import json
from odradek.pipeline.segments.worker_imports import spare_archives
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.session import open_session

def origins(batches):
    import odradek.pipeline, pyarrow, sys
    for batch in batches:
        spare_archives()  # by reference: the module must be there
        names = [odradek.pipeline.__file__, ":".join(sys.path)]
        yield pyarrow.RecordBatch.from_pydict({"origin": names})

def look(session):
    found = session.range(1).mapInArrow(origins, "origin STRING").collect()
    conf = session.sparkContext.getConf()
    print(json.dumps({
        "executor": found[0].origin,
        "path": found[1].origin,
        "host": conf.get("spark.driver.host"),
        "master": session.sparkContext.master,
        "files": list(session.sparkContext.listFiles),
    }))
"""
INGESTS = """
import sys
from odradek.cli.__main__ import main
status = main(sys.argv[1:])
if status == 0:
    look(open_session(Settings()))
sys.exit(status)
"""
OPENS = """
import sys
look(open_session(Settings(master=sys.argv[1], spark=json.loads(sys.argv[2]))))
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=1) as url:
        yield url


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages that executors need, and without odradek."""
    directory = tmp_path_factory.mktemp("python")
    (directory / "packages").mkdir()
    for name in ("numpy", "obstore", "pyarrow"):
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        package = Path(found.origin).parent
        for path in (package, package.with_name(f"{name}.libs")):
            if path.exists():
                (directory / "packages" / path.name).symlink_to(path)
    script = directory / "python"
    lines = ["#!/bin/sh", f'PYTHONPATH="$PYTHONPATH:{directory}/packages" exec {shlex.quote(sys.executable)} -S "$@"']
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    return script


def packed(file: Path) -> Path:
    """Packs the checkout's packages as in a wheel."""
    root = Path(odradek.__file__).parent
    with zipfile.ZipFile(file, "w") as archive:
        for directory, folders, names in os.walk(root, followlinks=True):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                if name.endswith((".py", ".xml", ".html", ".properties")):
                    path = Path(directory, name)
                    archive.write(path, f"odradek/{path.relative_to(root)}")
    return file


def run(command: list[str], directory: Path, **environ: str) -> dict[str, str]:
    """The output of `look`; the command runs outside the checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    done = subprocess.run(command, cwd=directory, env={**kept, **environ}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def settings_file(directory: Path, broker: str, topic: str) -> Path:
    file = directory / "orders.toml"
    lines = [f'name = "orders"\nlake = "{directory}/lake"\nbootstrap-server = "{broker}"\ntopics = ["{topic}"]']
    lines += ['schema = "id LONG, at TIMESTAMP"', 'event-time = "at"', "[spark]"]
    lines += [f'"{name}" = "{value}"' for name, value in OPTIONS.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_spark_submit_ingests_with_a_wheel_among_its_py_files(
    master: str, bare_python: Path, broker: BrokerThread, topic: str, tmp_path: Path
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(10):
        producer.send(topic, json.dumps({"id": number, "at": "2026-01-01T00:00:00Z"}).encode())
    producer.close()
    wheel = packed(tmp_path / "odradek-0.1.0-py3-none-any.whl")
    (tmp_path / "script.py").write_text(LOOKS + INGESTS)
    command = [str(SUBMIT), "--master", master, "--py-files", str(wheel), "--conf", "spark.ui.enabled=false"]
    command += [str(tmp_path / "script.py"), "pipeline", "ingest", "--settings"]
    command += [str(settings_file(tmp_path, broker.bootstrap, topic))]
    found = run(command, tmp_path, PYSPARK_DRIVER_PYTHON=sys.executable, PYSPARK_PYTHON=str(bare_python))
    assert DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table().num_rows == 10
    assert found["master"] == master
    assert found["host"] == "127.0.0.1", "where it reaches the master"
    assert "odradek_pipeline_" in found["executor"], "no executor has a .whl in its path"


def test_executors_get_the_users_own_zip(master: str, bare_python: Path, tmp_path: Path) -> None:
    own = packed(tmp_path / "own.zip")
    (tmp_path / "script.py").write_text(LOOKS + OPENS)
    spark = {**OPTIONS, "spark.submit.pyFiles": str(own), "spark.pyspark.python": str(bare_python)}
    found = run(
        [sys.executable, str(tmp_path / "script.py"), master, json.dumps(spark)],
        tmp_path,
        PYTHONPATH=str(Path(odradek.__file__).parents[1]),
    )
    assert "/own.zip/odradek/pipeline/" in found["executor"]
    assert found["host"] == "localhost"
    assert not any("odradek_pipeline_" in file for file in found["files"])

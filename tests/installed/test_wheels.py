"""Each wheel in a fresh environment, used from a project whose folders have the names of our packages.

`make dist-test` runs this: $ODRADEK_WHEELS is the directory of the wheels, and pip installs what they depend on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from pathlib import Path

import pytest

from tests import pythons

WHEELS = Path(os.environ["ODRADEK_WHEELS"])
PACKAGES = ("broker", "cli", "clients", "pipeline", "protocol", "purgatory", "storage", "testing", "timer")
COMPILED, PURE = "*-cp3*-manylinux*.whl", "*-py3-none-any.whl"

THEIR_TESTS = """
import importlib

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition


@pytest.mark.parametrize("package", ["broker", "cli", "pipeline", "protocol", "purgatory", "storage", "timer"])
def test_the_projects_own_folders_keep_their_names(package, odradek_broker):
    assert importlib.import_module(package).OWNER == "this project"


def test_the_fixture_serves_kafka_python_2(odradek_broker):
    producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)
    assert producer.send("topic", b"value").get(timeout=20).offset == 0
    producer.close()
    consumer = KafkaConsumer("topic", bootstrap_servers=odradek_broker.bootstrap, auto_offset_reset="earliest")
    assert next(consumer).value == b"value"
    consumer.close()
"""

# One key, 4,000 times: 4 MB in segments of 1 MB, more than the broker cleans in its own process.
OVERWRITE_A_KEY = """
import os
import sys
from kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=sys.argv[1])
for number in range(4000):
    producer.send("compacted", os.urandom(1000), key=b"key")
producer.flush()
producer.close()
"""

ORDERS = """
import sys
from kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=sys.argv[1])
for number in range(100):
    producer.send(sys.argv[2], b'{"id": %d}' % number)
producer.flush()
producer.close()
"""
COUNT_ROWS = """
import sys
from deltalake import DeltaTable

print(DeltaTable(sys.argv[1]).count())
"""


class Project:
    """A directory with its own packages, and a fresh environment in which a wheel is installed."""

    def __init__(self, directory: Path, *packages: str) -> None:
        self.directory = directory / "project"
        for name in PACKAGES:
            (self.directory / name).mkdir(parents=True)
            (self.directory / name / "__init__.py").write_text('OWNER = "this project"\n')
        (self.directory / "tests").mkdir()
        (self.directory / "tests" / "test_theirs.py").write_text(THEIR_TESTS)
        subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
        self._bin = directory / "venv" / "bin"
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)

    def run(self, program: str, *arguments: str, expect: int = 0) -> str:
        """Runs a program of the environment in the project; returns its output."""
        done = subprocess.run(
            [self._bin / program, *arguments],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert done.returncode == expect, (done.stdout + done.stderr)[-4000:]
        return done.stdout + done.stderr

    @contextmanager
    def serving(self, *settings: str) -> Iterator[str]:
        """Runs `odradek serve` in the project; yields its HOST:PORT."""
        command = [str(self._bin / "odradek"), "serve", "--port", "0", "--data-dir", str(self.directory / "data")]
        for setting in settings:
            command += ["--set", setting]
        with (self.directory / "broker.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self._environment(), stdout=subprocess.PIPE, stderr=log, text=True
            )
            with process:
                assert process.stdout is not None
                try:
                    ready = process.stdout.readline().split()
                    assert ready[:1] == ["ready"], (self.directory / "broker.log").read_text()
                    yield ready[1]
                finally:
                    process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0

    def _environment(self) -> dict[str, str]:
        return {
            name: value for name, value in os.environ.items() if not name.startswith(("ODRADEK", "PYTHON", "PYTEST"))
        }


def wheel(pattern: str) -> Path:
    (found,) = WHEELS.glob(pattern)
    return found


@pytest.fixture(scope="module", params=[COMPILED, PURE], ids=["compiled", "pure"])
def beside_kafka_python_2(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    directory = tmp_path_factory.mktemp("strangers")
    return Project(directory, str(wheel(request.param)), "kafka-python<3", "pytest")


@pytest.mark.parametrize("pattern", [COMPILED, PURE], ids=["compiled", "pure"])
def test_a_wheel_installs_only_the_package_and_the_spark_data_source(pattern: str) -> None:
    with zipfile.ZipFile(wheel(pattern)) as archive:
        names = archive.namelist()
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"odradek", "pyspark_odradek"}
    assert {"odradek/py.typed", "odradek/broker/server.properties", "odradek/pipeline/spark/pom.xml"} <= set(names)
    assert "odradek/broker/console/static/index.html" in names
    assert any(name.endswith(".so") for name in names) == (pattern == COMPILED)


@pytest.mark.parametrize("pattern", [COMPILED, PURE], ids=["compiled", "pure"])
def test_a_wheel_names_the_pythons_that_are_tested(pattern: str) -> None:
    with zipfile.ZipFile(wheel(pattern)) as archive:
        (file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(file))
    assert metadata["Requires-Python"] == ">={}.{}".format(*pythons.supported()[0])
    named = {
        line for line in metadata.get_all("Classifier", []) if line.startswith("Programming Language :: Python :: 3.")
    }
    assert named == {"Programming Language :: Python :: {}.{}".format(*version) for version in pythons.supported()}


def test_the_wheel_runs_in_its_own_form_compiled_or_pure(beside_kafka_python_2: Project) -> None:
    output = beside_kafka_python_2.run("python", "-P", "-m", "odradek.broker.build_info")
    assert "interpreted" not in output
    assert output.startswith(("compiled: odradek.", "nothing is compiled, all is plain Python")), output


def test_a_projects_tests_use_the_fixture_and_keep_their_own_imports(beside_kafka_python_2: Project) -> None:
    output = beside_kafka_python_2.run("python", "-m", "pytest", "-q", "tests")
    assert "8 passed" in output, output


def test_a_broker_started_in_the_project_compacts_a_topic(beside_kafka_python_2: Project) -> None:
    quick = ("log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01", "log.segment.bytes=1048576")
    with beside_kafka_python_2.serving(*quick) as bootstrap:
        create = ("topics", "create", "compacted", "--config", "cleanup.policy=compact")
        beside_kafka_python_2.run("odradek", *create, "--bootstrap-server", bootstrap)
        beside_kafka_python_2.run("python", "-c", OVERWRITE_A_KEY, bootstrap)
        log = beside_kafka_python_2.directory / "broker.log"
        folder = beside_kafka_python_2.directory / "data" / "compacted-0"
        deadline = time.monotonic() + 60
        while sum(file.stat().st_size for file in folder.glob("*.log")) >= 3 << 20:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


def test_a_missing_extra_is_reported_in_one_line(beside_kafka_python_2: Project) -> None:
    output = beside_kafka_python_2.run("odradek", "consume", "topic", expect=1)
    assert "pip install 'odradek[cli]'" in output
    output = beside_kafka_python_2.run(
        "odradek", "pipeline", "ingest", "--topics", "t", "--schema", "id LONG", expect=1
    )
    assert "pip install 'odradek[spark]'" in output
    assert beside_kafka_python_2.run("odradek", "--version").startswith("odradek 0.")


@pytest.fixture(scope="module")
def with_spark(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("engineers"), f"{wheel(PURE)}[spark]")


@pytest.mark.parametrize("pattern", [PURE, COMPILED], ids=["pure", "compiled"])
def test_the_spark_extra_runs_an_ingest(with_spark: Project, pattern: str) -> None:
    with_spark.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel(pattern)))
    topic = "pure" if pattern == PURE else "compiled"
    with with_spark.serving() as bootstrap:
        with_spark.run("python", "-c", ORDERS, bootstrap, topic)
        with_spark.run(
            "odradek", "pipeline", "ingest", "--bootstrap-server", bootstrap, "--topics", topic,
            "--schema", "id LONG", "--lake", "lake", "--name", topic,
        )  # fmt: skip
    assert with_spark.run("python", "-c", COUNT_ROWS, f"lake/{topic}").strip() == "100"

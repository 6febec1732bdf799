"""One Spark session for all tests, and a broker of ours in this process."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.spark.session import open_session
from odradek.testing import BrokerThread

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
SPARK_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""What Java has made of Spark's classes (tests/pipeline/spark_classes.py). Java does without it if it is not there."""
QUICK_SPARK = f"{QUICK_JAVA} -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable"
QUICK_SESSION = {
    "spark.driver.extraJavaOptions": QUICK_SPARK,
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}
"""Quarters Spark's start time and CPU; not for measurements."""


def pytest_configure(config: pytest.Config) -> None:
    """Ignores unclosed sockets of PySpark, and of kafka-python without a broker."""
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")  # pyspark.testing loads pandas on Spark, which requires it
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this worker, with its own directories; jobs find it with `open_session`."""
    os.environ.pop("SPARK_HOME", None)
    own = tmp_path_factory.mktemp("spark")
    directories = {"spark.sql.warehouse.dir": str(own / "warehouse"), "spark.local.dir": str(own / "scratch")}
    session = open_session(Settings(name="tests", master="local[2]"), {**QUICK_SESSION, **directories})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerThread]:
    """A broker for all tests; each test uses its own topics."""
    with BrokerThread(num_partitions=2, log_retention_ms=-1) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A unique topic name."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def orders(broker: BrokerThread, topic: str, tmp_path: Path) -> Settings:
    """A pipeline of JSON orders; tests vary it with `dataclasses.replace`."""
    return make_settings(
        {
            "name": "orders",
            "lake": str(tmp_path / "lake"),
            "bootstrap_server": broker.bootstrap,
            "topics": [topic],
            "schema": "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP",
            "event_time": "at",
            "required": ["id", "at"],
            "master": "local[2]",
        }
    )

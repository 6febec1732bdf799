"""The same job gives the same tables: in this process, on a standalone cluster, and from Apache Kafka."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

from odradek.pipeline.demo.shop import SCHEMA, orders
from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.conftest import QUICK_SESSION, QUICK_SPARK
from tests.pipeline.standalone_cluster import standalone_cluster
from tests.spawned_broker import free_port_beside_another

ROOT = Path(__file__).resolve().parents[3]
TOPIC, PARTITIONS, RECORDS = "shop", 4, 2000
START = datetime(2026, 1, 1, tzinfo=UTC)

Tables = dict[str, list[dict[str, Any]]]


def fill(bootstrap: str) -> None:
    """Sends the shop's orders with partitions and timestamps, so that the topics of two brokers are equal.

    Both records of a repeated order are in one partition, as with keys: which of two records in different
    partitions is kept depends on Spark's shuffle.
    """
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs={"retention.ms": "-1"})])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number, record in enumerate(orders(Random(3), RECORDS, START)):
        at = int((START + timedelta(milliseconds=number)).timestamp() * 1000)
        headers = [("number", str(number).encode())]
        partition = crc32(record.key) % PARTITIONS
        producer.send(TOPIC, record.value, key=record.key, headers=headers, partition=partition, timestamp_ms=at)
    producer.close()


def job(bootstrap: str, lake: Path) -> Settings:
    return make_settings(
        {
            "name": "orders",
            "lake": str(lake),
            "master": "local[2]",
            "bootstrap_server": bootstrap,
            "topics": [TOPIC],
            "schema": SCHEMA,
            "required": ["id", "at"],
            "event_time": "at",
            "dedup_keys": ["id"],
            "watermark_delay": "1 minute",
            "max_offsets_per_trigger": 700,
            "window": "1 minute",
            "window_by": ["country"],
            "window_sums": ["quantity"],
            "partition_by": ["country"],
        }
    )


def tables(settings: Settings) -> Tables:
    """All tables, sorted; the ledger without the columns that depend on time, Spark or files."""
    places = Places.of(settings)
    found = {}
    for path in (places.rows, places.dead_letters, places.windows, places.ledger):
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        if path == places.ledger:
            counts = ("batch_id", "rows_in", "good", "dead", "duplicates", "late", "watermark", "end_offsets")
            rows = [{name: row[name] for name in counts} for row in rows]
        found[path.url.rsplit("/", 1)[-1]] = sorted(rows, key=lambda row: repr(sorted(row.items())))
    return found


@pytest.fixture(scope="module")
def ours(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Tables]]:
    """An Odradek broker with the orders, and the tables of a run in this process."""
    with BrokerThread() as broker:
        fill(broker.bootstrap)
        settings = job(broker.bootstrap, tmp_path_factory.mktemp("lake"))
        ingest.run(settings)
        yield broker.bootstrap, tables(settings)


def test_the_compared_tables_are_not_empty(ours: tuple[str, Tables]) -> None:
    _, expected = ours
    ledger = expected["batches"]
    assert sum(row["rows_in"] for row in ledger) == RECORDS
    assert all(sum(row[kind] for row in ledger) > 0 for kind in ("good", "dead", "duplicates", "late"))
    assert len(expected["orders"]) == sum(row["good"] for row in ledger)


def test_a_standalone_cluster_of_two_workers_writes_the_same_tables(ours: tuple[str, Tables], tmp_path: Path) -> None:
    bootstrap, expected = ours
    settings = job(bootstrap, tmp_path / "lake")
    file = tmp_path / "orders.toml"
    plain = {name: value for name, value in dataclasses.asdict(settings).items() if value and name != "master"}
    file.write_text("\n".join(f"{name} = {toml(value)}" for name, value in plain.items()))
    with standalone_cluster(tmp_path) as master:
        command = [
            sys.executable,
            "-m",
            "odradek.cli",
            "pipeline",
            "ingest",
            "--settings",
            str(file),
            "--master",
            master,
        ]
        for option in ("spark.executor.memory=512m", f"spark.executor.extraJavaOptions={QUICK_SPARK}"):
            command += ["--spark", option]
        for name, setting in QUICK_SESSION.items():
            command += ["--spark", f"{name}={setting}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
        assert done.returncode == 0, done.stderr[-3000:]
        asked = [one.replace("ingest", "doctor") for one in command]
        done = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, timeout=240)
        assert f"ok       executors: 2 of {master} read and write" in done.stdout, done.stdout + done.stderr[-3000:]
        executors = len(list(tmp_path.glob("worker-*/app-*/*")))
    assert executors == 4, "two of each job"
    assert tables(settings) == expected


def toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(toml(one) for one in value)}]"
    return str(value) if isinstance(value, int) else f'"{value}"'


def test_an_ingest_from_apache_kafka_writes_the_same_tables(
    ours: tuple[str, Tables], tmp_path: Path, kafka_control: list[str]
) -> None:
    _, expected = ours
    port = free_port_beside_another()
    subprocess.run([*kafka_control, "start", str(port), str(tmp_path / "kafka")], check=True, capture_output=True)
    try:
        fill(f"127.0.0.1:{port}")
        settings = job(f"127.0.0.1:{port}", tmp_path / "lake")
        ingest.run(settings)
    finally:
        subprocess.run([*kafka_control, "stop", str(tmp_path / "kafka")], check=True, capture_output=True)
    assert tables(settings) == expected

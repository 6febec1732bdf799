"""Jobs on a cluster whose machines share only an object store write the tables of one machine, whatever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from odradek.pipeline.jobs import backfill
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.cluster.lake_tables import check_same, every_kind, in_store, ingested_twin, varied
from tests.pipeline.cluster.namespaced_cluster import SESSION_OPTIONS, NamespacedCluster, Worker
from tests.pipeline.cluster.nodes import kill
from tests.pipeline.cluster.object_store import ObjectStore
from tests.pipeline.lake import check_tables, order, send
from tests.soak import rounds

pytestmark = pytest.mark.timeout(900)

DRIVER = [sys.executable, "-m", "tests.pipeline.cluster.cluster_job"]
CLI = [sys.executable, "-m", "odradek.cli"]
TMP = Path("/tmp")
DRIVER_KILLS = ("windows: committed", "rows: files written", "rows: committed", "ledger: committed")
"""The points of a batch, in order."""


class Driver:
    """A driver on the cluster, started on demand and again after a kill."""

    def __init__(self, cluster: NamespacedCluster) -> None:
        self._cluster = cluster
        self._log = cluster.directory / "driver.log"
        self._process: subprocess.Popen[str] | None = None

    def begin(self, job: str, settings: Settings, pause: tuple[str, int] = ("", 0)) -> None:
        if self._process is None:
            self._process = self._cluster.start_driver([*DRIVER, self._cluster.url], self._log, stdin=subprocess.PIPE)
            assert self.next_message() == {"ready": True}
        self.go_on(json.dumps({"job": job, "settings": asdict(settings), "pause": pause}))

    def go_on(self, line: str = "") -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def next_message(self) -> dict[str, Any]:
        """The driver's next message; skips Java's warnings on the same stream."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                message: dict[str, Any] = json.loads(line)
                return message
        raise AssertionError(self._log.read_text()[-3000:])

    def run(self, job: str, settings: Settings) -> dict[str, Any]:
        self.begin(job, settings)
        return self.next_message()

    def kill(self) -> None:
        """kill -9 of the driver; does nothing if none runs."""
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._cluster.stop_driver(self._process)
            self._process = None


@pytest.fixture(scope="module")
def driver(cluster: NamespacedCluster) -> Iterator[Driver]:
    running = Driver(cluster)
    yield running
    running.kill()


@pytest.fixture
def settings(
    cluster: NamespacedCluster, cluster_store: ObjectStore, cluster_broker: BrokerThread, topic: str
) -> Settings:
    """A pipeline on the cluster, with its lake in a bucket of its own."""
    plain = Settings(
        name="orders",
        topics=(topic,),
        bootstrap_server=cluster_broker.bootstrap,
        schema="id LONG, customer STRING, amount DOUBLE, at TIMESTAMP",
        event_time="at",
        required=("id", "at"),
        max_offsets_per_trigger=70,
        master=cluster.url,
        shadow_group=topic,
    )
    return in_store(varied(plain), cluster_store.with_new_bucket())


def test_all_jobs_write_the_same_tables_as_on_one_machine(
    spark: SparkSession, driver: Driver, settings: Settings, topic: str, tmp_path: Path
) -> None:
    twin = replace(settings, lake=str(tmp_path / "lake"), store={}, master="", shadow_group="twin")
    send(settings.bootstrap_server, topic, every_kind(0, 0, 40))
    assert driver.run("backfill", settings)["status"] == 0
    assert backfill.run(twin) == 0
    send(settings.bootstrap_server, topic, every_kind(1000, 60, 40))
    assert driver.run("ingest", settings)["status"] == 0
    ingested_twin(settings, twin.lake)
    check_tables(spark, twin)
    check_same(settings, twin)
    assert driver.run("compact", settings)["status"] == 0
    check_same(settings, twin)
    assert "80 good" in driver.run("report", settings)["out"]
    doctor = driver.run("doctor", settings)
    assert doctor["status"] == 0, doctor["out"]


def test_an_executor_killed_during_a_batch_changes_no_count(
    spark: SparkSession, cluster: NamespacedCluster, driver: Driver, settings: Settings, topic: str, tmp_path: Path
) -> None:
    send(settings.bootstrap_server, topic, every_kind(0, 0, 110))
    driver.begin("ingest", settings, ("read", 1))
    assert driver.next_message() == {"reached": "read"}
    kill(cluster.workers[0].executors()[0])  # The killed executor had half of the judged rows.
    driver.go_on()
    wait_for_a_batch(settings)
    kill(cluster.workers[1].executors()[0])
    assert driver.next_message() == {"status": 0, "out": ""}
    check_same(settings, ingested_twin(settings, str(tmp_path / "lake")))


def wait_for_a_batch(settings: Settings) -> None:
    ledger, until = Ledger(Places.of(settings).ledger), time.monotonic() + 60
    while ledger.newest() is None:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.soak("a driver on a cluster killed at 4 places, one after the other", minutes=3)
def test_a_killed_driver_loses_and_duplicates_nothing(
    spark: SparkSession, driver: Driver, settings: Settings, topic: str, tmp_path: Path
) -> None:
    send(settings.bootstrap_server, topic, every_kind(0, 0, 50))
    for point in DRIVER_KILLS[: rounds(1, in_soak=4)]:
        driver.begin("ingest", settings, (point, 1))
        assert driver.next_message() == {"reached": point}
        driver.kill()
    assert driver.run("ingest", settings) == {"status": 0, "out": ""}
    check_same(settings, ingested_twin(settings, str(tmp_path / "lake")))


def test_a_full_disk_of_one_worker_loses_and_duplicates_nothing(
    spark: SparkSession, cluster: NamespacedCluster, driver: Driver, settings: Settings, topic: str, tmp_path: Path
) -> None:
    settings = replace(settings, window="", window_by=(), window_sums=(), max_offsets_per_trigger=0, files_per_batch=2)
    send(settings.bootstrap_server, topic, [order(number, number) for number in range(10)])
    assert driver.run("ingest", settings)["status"] == 0
    twin = ingested_twin(settings, str(tmp_path / "lake"))
    large = [order(number, number, customer=random_text(100_000, number)) for number in range(10, 40)]
    send(settings.bootstrap_server, topic, large)
    worker = cluster.workers[0]
    resize(worker, left_kib=256)
    try:
        ended = driver.run("ingest", settings)
    finally:
        worker.run(["mount", "-o", "remount,size=1g", TMP])
    assert ended.get("status") == 0 or "the disk is full (No space left on device: /tmp of " in ended["error"], ended
    assert driver.run("ingest", settings)["status"] == 0
    check_same(settings, ingested_twin(settings, twin.lake))


def random_text(size: int, seed: int) -> str:
    return Random(seed).randbytes(size).hex()


def resize(worker: Worker, left_kib: int) -> None:
    """Leaves this much free space on the worker's /tmp."""
    used = int(worker.run(["df", "--output=used", "-k", TMP]).split()[-1])
    worker.run(["mount", "-o", f"remount,size={used + left_kib}k", TMP])


def test_an_unshared_lake_ends_the_command_without_a_commit(
    cluster: NamespacedCluster, driver: Driver, settings: Settings, topic: str, tmp_path: Path
) -> None:
    driver.kill()  # The driver holds the cluster's cores.
    send(settings.bootstrap_server, topic, every_kind(0, 0))
    local = replace(settings, lake=str(cluster.lake / "lake"), store={}, spark=SESSION_OPTIONS)
    file = cluster.directory / "orders.toml"
    file.write_text(as_toml(local))
    log = tmp_path / "cli.log"
    command = cluster.start_driver([*CLI, "pipeline", "ingest", "--settings", file, "--master", cluster.url], log)
    try:
        command.communicate(timeout=300)
    finally:
        cluster.stop_driver(command)
    *_, line = log.read_text().splitlines()
    assert command.returncode == 1
    assert "odradek: the executor on " in line
    assert "the driver does not find it in" in line
    assert "put the lake where the driver and all executors can access it" in line
    assert Ledger(Places.of(local).ledger).rows() == []
    with KafkaAdminClient(bootstrap_servers=settings.bootstrap_server) as admin:
        assert settings.group not in {one["group_id"] for one in admin.list_groups()}


def as_toml(settings: Settings) -> str:
    """A settings file with all settings but the master."""
    tables = ("kafka", "store", "spark")
    lines = [
        f"{name} = {json.dumps(value)}" for name, value in asdict(settings).items() if name not in (*tables, "master")
    ]
    for name in tables:
        lines += [
            f"[{name}]",
            *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in getattr(settings, name).items()),
        ]
    return "\n".join(lines)

"""kill -9 of all processes of an ingest, at random and at the worst moments, and of its broker.

Whatever was killed, the next run ends with the tables of a batch computation and with a ledger that adds up.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.conftest import QUICK_SESSION
from tests.pipeline.jobs.test_shaping import SHAPED
from tests.pipeline.lake import IngestThread, check_ledger, check_tables, order, send
from tests.soak import SOAK, rounds
from tests.spawned_broker import free_port, start_broker

RANDOM_KILLS, BROKER_KILLS = rounds(1, in_soak=22), rounds(1, in_soak=3)
POINTS = [
    ("read", 1),  # Before the first batch is committed.
    ("rows: files written", 1),  # Inside the sink, and between the tables.
    ("ledger: committed", 1),  # Between the sinks' commits and the checkpoint's.
]
MORE_POINTS = [
    ("rows: committed", 1),
    ("dead_letters: committed", 2),
    ("windows: files written", 1),
    ("windows: committed", 2),
    ("rows: files written", 2),
    ("ledger: committed", 3),
]


def start(settings: Settings, directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts the job in a process group of its own."""
    file = directory / "settings.json"
    file.write_text(json.dumps({**asdict(settings), "spark": QUICK_SESSION}))
    command = [sys.executable, "-m", "tests.pipeline.killed_ingest", str(file), *arguments]
    with (directory / "ingest.log").open("ab") as log:
        return subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE, stdout=log, stderr=log)


@contextmanager
def one_after_the_other(
    settings: Settings, directory: Path, points: Sequence[tuple[str, int]], *job: str
) -> Iterator[Iterator[subprocess.Popen[bytes]]]:
    """Jobs that kill themselves at the points. The next job starts Spark meanwhile, and works after the kill."""
    started: list[subprocess.Popen[bytes]] = []

    def next_one() -> None:
        if len(started) < len(points):
            point, times = points[len(started)]
            started.append(start(settings, directory, point, str(times), *job, "standby"))

    def in_turn() -> Iterator[subprocess.Popen[bytes]]:
        for number in range(len(points)):
            next_one()
            stdin = started[number].stdin
            assert stdin is not None
            stdin.close()
            yield started[number]

    next_one()
    try:
        yield in_turn()
    finally:
        for process in started:
            if process.returncode is None:  # The id of an ended process may belong to another one by now.
                kill(process)


def finish(process: subprocess.Popen[bytes], directory: Path, wanted: int = 0) -> None:
    try:
        assert process.wait(200) == wanted, (directory / "ingest.log").read_text()[-5000:]
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the group: driver, JVM and Python workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(20)
    if process.stdin is not None:
        process.stdin.close()


def lively(count: int, start: int = 0) -> list[bytes | None]:
    """Orders a second apart, a tenth of them twice, with some that are broken."""
    values: list[bytes | None] = []
    for number in range(start, start + count):
        values.append(order(number, number))
        if number % 10 == 0:
            values.append(order(number, number))
        if number % 25 == 0:
            values += [b"{", None]
    return values


def settings_of(orders: Settings, **more: object) -> Settings:
    return replace(
        orders,
        dedup_keys=("id",),
        max_offsets_per_trigger=150,
        window="1 minute",
        window_by=("customer",),
        window_sums=("amount",),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.soak("a kill at each of 9 places, for both sinks", minutes=6)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sink", ["delta", "iceberg"] if SOAK else ["delta"])
def test_placed_kills_leave_the_tables_of_a_batch_computation(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path, sink: str
) -> None:
    settings = settings_of(orders, sink=sink)
    send(broker.bootstrap, topic, lively(rounds(250, in_soak=1000)))
    with one_after_the_other(settings, tmp_path, [*POINTS, *(MORE_POINTS if SOAK else [])]) as jobs:
        for job in jobs:
            finish(job, tmp_path, -signal.SIGKILL)
    assert ingest.run(settings) == 0
    check_tables(spark, settings)


ONE_PASS_POINTS = [("dead_letters: committed", 1)]  # Between the tables, whose files one pass has written.
MORE_ONE_PASS_POINTS = [
    ("read", 1),
    ("dead_letters: files written", 1),
    ("rows: files written", 2),
    ("rows: committed", 1),
    ("ledger: committed", 2),
]


@pytest.mark.soak("a kill at each of 6 places, for all sinks", minutes=6)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sink", ["delta", "iceberg", "parquet"] if SOAK else ["delta", "iceberg"])
def test_placed_kills_of_batches_in_one_pass_leave_the_same_tables(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path, sink: str
) -> None:
    settings = replace(orders, sink=sink, max_offsets_per_trigger=150)
    send(broker.bootstrap, topic, lively(rounds(250, in_soak=1000)))
    points = [*ONE_PASS_POINTS, *(MORE_ONE_PASS_POINTS if SOAK else [])]
    with one_after_the_other(settings, tmp_path, points) as jobs:
        for job in jobs:
            finish(job, tmp_path, -signal.SIGKILL)
    assert ingest.run(settings) == 0
    if sink != "parquet":
        check_tables(spark, settings)
        return
    ledger = check_ledger(settings)
    found = spark.read.parquet(*map(str, Places.of(settings).rows.path.glob("batch=*")))
    assert found.count() == sum(row.good for row in ledger) == found.select("_partition", "_offset").distinct().count()
    assert sum(row.rows_in for row in ledger) == len(lively(rounds(250, in_soak=1000)))


@pytest.mark.soak("22 kills at random moments, for both sinks", minutes=20)
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("sink", ["delta", "iceberg"] if SOAK else ["delta"])
def test_random_kills_leave_the_tables_of_a_batch_computation_with_columns_rules_and_a_hook(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path, sink: str
) -> None:
    settings, source = settings_of(orders, sink=sink, **SHAPED), random.Random(20)
    ledger = Ledger(Places.of(settings).ledger)
    for round_number in range(RANDOM_KILLS):
        send(broker.bootstrap, topic, lively(400, 400 * round_number))
        before, process = len(ledger.rows()), start(settings, tmp_path, "-")
        until = time.monotonic() + (source.uniform(0, 20) if source.random() < 0.3 else 200)
        try:
            while process.poll() is None and len(ledger.rows()) == before and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(source.random() * 3)
        finally:
            kill(process)
    assert ingest.run(settings) == 0
    check_tables(spark, settings)


@pytest.mark.soak("a signal to an ingest here and in a process of its own", minutes=1)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("where", ["here", "in a process of its own"] if SOAK else ["here"])
def test_a_signal_ends_the_ingest_after_its_batch_with_status_0(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path, where: str
) -> None:
    settings = replace(orders, trigger="0 seconds", max_offsets_per_trigger=20)
    send(broker.bootstrap, topic, lively(100))
    if where == "here":
        end_the_ingest_here(settings)
    else:
        end_the_ingest_elsewhere(settings, tmp_path)
    assert 0 < sum(row.rows_in for row in Ledger(Places.of(settings).ledger).rows()) < len(lively(100))
    assert ingest.run(replace(settings, trigger="available-now", max_offsets_per_trigger=0)) == 0
    check_tables(spark, settings)


def end_the_ingest_here(settings: Settings) -> None:
    """SIGTERM to this process, once there is a batch."""
    ledger, over, unheard = Ledger(Places.of(settings).ledger), threading.Event(), threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: unheard.set())

    def end_it() -> None:
        while not ledger.rows():
            if over.wait(0.1):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end_it)
    ending.start()
    try:
        assert ingest.run(settings) == 0
        assert not unheard.is_set()
    finally:
        over.set()
        ending.join()
        signal.signal(signal.SIGTERM, before)


def end_the_ingest_elsewhere(settings: Settings, directory: Path) -> None:
    """The same, of a process that does nothing else."""
    process, ledger = start(settings, directory, "-"), Ledger(Places.of(settings).ledger)
    try:
        while not ledger.rows():
            assert process.poll() is None, (directory / "ingest.log").read_text()[-5000:]
            time.sleep(0.1)
        process.terminate()
        finish(process, directory)
        assert "Traceback" not in (directory / "ingest.log").read_text()
    finally:
        kill(process)


@pytest.mark.soak("3 kills of the broker", minutes=2)
@pytest.mark.timeout(600)
def test_the_ingest_waits_for_a_killed_broker_and_loses_nothing(
    spark: SparkSession, orders: Settings, topic: str, tmp_path: Path
) -> None:
    port, data = free_port(), tmp_path / "data"
    own = {"num.partitions": "2", "log.retention.ms": "-1", "log.flush.interval.messages": "1"}
    broker = start_broker(data, own, port=port)
    settings = replace(settings_of(orders), bootstrap_server=broker.bootstrap, trigger="0 seconds")
    send(broker.bootstrap, topic, lively(300))
    ledger = Ledger(Places.of(settings).ledger)
    wanted = len(lively(300)) + len(lively(100)) * BROKER_KILLS
    try:
        with IngestThread(settings) as job:
            for round_number in range(BROKER_KILLS):
                job.wait_for(lambda seen=round_number + 1: len(ledger.rows()) > seen)  # type: ignore[misc]
                broker.kill()
                broker.close()
                time.sleep(1)
                broker = start_broker(data, own, port=port)
                send(broker.bootstrap, topic, lively(100, 1000 * (round_number + 1)))
            job.wait_for(lambda: sum(row.rows_in for row in ledger.rows()) == wanted)
            job.stop()
        check_tables(spark, settings)
    finally:
        broker.kill()
        broker.close()

"""Topics and tables for tests: records with every fault, and two readers of a table."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema
from kafka import KafkaProducer
from pyiceberg.table import StaticTable, Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.jobs import ingest
from odradek.pipeline.kafka.connector import connector_options
from odradek.pipeline.parse.derived import FILTERED
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.accounting import OUTCOMES
from odradek.pipeline.state.ledger import Ledger, LedgerRow
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.selection import REDRIVE

BASE = 1_700_000_000
"""Event time zero, in seconds."""


def order(number: int, at: float, **more: object) -> bytes:
    """An order as JSON; `at` in seconds after BASE."""
    moment = datetime.fromtimestamp(BASE + at, UTC).isoformat(timespec="milliseconds")
    fields = {"id": number, "customer": f"c{number % 5}", "amount": number / 4, "at": moment}
    return json.dumps({**fields, **more}).encode()


def send(
    bootstrap: str, topic: str, values: Iterable[bytes | None], partitions: int = 2, key_bytes: int = 0, **options: Any
) -> None:
    """Produces values, each to the next partition. `key_bytes`: the size of random keys. `options`: the producer's."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    for number, value in enumerate(values):
        key = os.urandom(key_bytes) if key_bytes else str(number).encode()
        producer.send(topic, value, key=key, partition=number % partitions)
    producer.flush()
    producer.close()


def send_transaction(bootstrap: str, topic: str, values: Iterable[bytes], *, commit: bool) -> None:
    """One transaction, committed or aborted."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"of-{topic}-{commit}")
    producer.init_transactions()
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.send(topic, value, partition=number % 2)
    producer.flush()
    (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()


def truth(spark: SparkSession, settings: Settings) -> DataFrame:
    """A batch computation of all records in the topics: parsed, not de-duplicated."""
    records = spark.read.format("kafka").options(**connector_options(settings), subscribe=",".join(settings.topics))
    return parsed(records.load(), settings, datetime.now(UTC))


def columns_of(settings: Settings) -> list[str]:
    return [part.split()[0] for part in settings.schema.split(",")]


def is_iceberg(path: os.PathLike[str]) -> bool:
    return (Path(path) / "metadata").is_dir()


def open_iceberg(path: os.PathLike[str]) -> Table:
    """Opens an Iceberg table without the pipeline: by its directory."""
    return StaticTable.from_metadata(os.fspath(path))


def read_by_spark(spark: SparkSession, path: os.PathLike[str], columns: Sequence[str]) -> DataFrame:
    """Reads the files in a table's log with Spark's own Parquet reader. The table is one of Delta or Iceberg."""
    if is_iceberg(path):
        scan, root = open_iceberg(path).scan(), f"{os.fspath(path)}/data"
        files = [one.file.file_path.removeprefix("file://") for one in scan.plan_files()]
        schema = Schema.from_arrow(scan.to_arrow().schema)
    else:
        files, root, schema = DeltaTable(path).file_uris(), os.fspath(path), DeltaTable(path).schema()
    if not files:
        whole = StructType.fromJson(json.loads(schema.to_json()))
        return spark.createDataFrame([], whole).select(*columns)
    read = spark.read.option("basePath", root).option("mergeSchema", "true").parquet(*files)
    return read.select(*columns)


def read_by_arrow(path: os.PathLike[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Reads a table with delta-rs or pyiceberg, of which neither knows the other's tables."""
    if is_iceberg(path):
        found: list[dict[str, Any]] = open_iceberg(path).scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
        return found
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return rows


def same_rows(one: Iterable[Mapping[str, Any]], other: Iterable[Mapping[str, Any]]) -> None:
    """Fails unless both have the same rows, each equally often."""

    def ordered(rows: Iterable[Mapping[str, Any]]) -> list[str]:
        return sorted(repr(sorted(row.items())) for row in rows)

    assert ordered(one) == ordered(other)


def check_ledger(settings: Settings) -> list[LedgerRow]:
    """The ledger's rows; fails unless every record is accounted for and the offsets are contiguous."""
    rows = Ledger(Places.of(settings).ledger).rows()
    for row in rows:
        assert row.rows_in + row.redriven == sum(getattr(row, name) for name in OUTCOMES), row
        assert row.dead == sum(row.reasons.values())
        assert row.redriven == sum(row.redriven_reasons.values())
        assert (row.job == REDRIVE) == (row.redriven > 0)
        assert not (row.rows_in and row.redriven)
    for before, after in itertools.pairwise(rows):
        assert after.batch_id == before.batch_id + 1
        for topic, partitions in before.end_offsets.items():
            assert {n: after.start_offsets[topic][n] for n in partitions} == partitions
    return rows


def check_tables(spark: SparkSession, settings: Settings) -> list[LedgerRow]:
    """Fails unless the tables hold what a batch computation makes of the topics, by two readers, and the ledger
    adds up to it. Topics in which no event is late."""
    places, columns = Places.of(settings), columns_of(settings)
    judged = truth(spark, settings).persist()
    try:
        wanted = judged.where("reason is null").select("data.*", "topic", "partition", "offset")
        total = wanted.count()
        if settings.dedup_keys:
            wanted = wanted.dropDuplicates(list(settings.dedup_keys))
        wanted = wanted.select(*columns)
        found = read_by_spark(spark, places.rows, columns)
        assertDataFrameEqual(found, wanted)
        same_rows(read_by_arrow(places.rows, columns), wanted.toArrow().to_pylist())
        place = ["_topic", "_partition", "_offset"]
        offsets = [tuple(row[name] for name in place) for row in read_by_arrow(places.rows, place)]
        assert len(set(offsets)) == len(offsets), "an offset is there twice"
        letters = ["reason", "key", "value", "topic", "partition", "offset", "timestamp"]
        dead = judged.where(f"reason <> '{FILTERED}'").select(*letters)
        assertDataFrameEqual(read_by_spark(spark, places.dead_letters, letters), dead)
        same_rows(read_by_arrow(places.dead_letters, letters), dead.toArrow().to_pylist())
        if settings.window:
            check_windows(settings, wanted.toArrow().to_pylist())
        rows = check_ledger(settings)
        assert sum(row.rows_in - row.dropped for row in rows) == judged.count()
        assert sum(row.filtered for row in rows) == judged.where(f"reason = '{FILTERED}'").count()
        assert sum(row.good for row in rows) == found.count()
        assert sum(row.dead for row in rows) == dead.count()
        assert sum(row.duplicates for row in rows) == total - found.count()
        assert sum(row.late + row.lost for row in rows) == 0
        return rows
    finally:
        judged.unpersist()


def check_windows(settings: Settings, orders: Iterable[Mapping[str, Any]]) -> None:
    """Fails unless the windows of one minute by customer hold these orders' number and their sum of amounts."""
    assert (settings.window, settings.window_by, settings.window_sums) == ("1 minute", ("customer",), ("amount",))
    wanted: dict[tuple[datetime, str], list[float]] = {}
    for one in orders:
        wanted.setdefault((one["at"].replace(second=0, microsecond=0), one["customer"]), []).append(one["amount"])
    columns = ["window_start", "customer", "count", "sum_amount"]
    found = [tuple(row[name] for name in columns) for row in read_by_arrow(Places.of(settings).windows, columns)]
    assert sorted(found) == sorted((*key, len(amounts), sum(amounts)) for key, amounts in wanted.items())


class IngestThread:
    """An ingest in a thread of this process, which owns the session."""

    def __init__(self, settings: Settings) -> None:
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(settings,), daemon=True)
        self._thread.start()

    def _run(self, settings: Settings) -> None:
        try:
            ingest.run(settings, stopping=self._stopping)
        except BaseException as error:
            self._failure = error

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 120) -> None:
        """Fails if the job fails, or after the timeout."""
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, "it took too long"
            assert self._thread.is_alive(), self._failure
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends the job after its batch. Raises the job's error."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> IngestThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(120)

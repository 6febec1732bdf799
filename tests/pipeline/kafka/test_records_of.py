"""Records of a range of offsets: the connector and the segments give the same rows."""

from __future__ import annotations

import base64
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.history import records_of
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import look
from odradek.pipeline.segments.source import SegmentSource
from odradek.pipeline.settings import Settings, make_settings
from odradek.testing import BrokerThread
from tests.pipeline.parse.parsing_records import COLUMNS


def produce(broker: BrokerThread, topic: str, count: int, partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(count):
        producer.send(topic, b"%d" % number, key=b"k", headers=[("h", b"1")], partition=partition)
    producer.close()


def places(rows: DataFrame) -> list[tuple[str, int, int]]:
    return sorted((row.topic, row.partition, row.offset) for row in rows.collect())


def test_a_range_excludes_its_end_offset(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    produce(broker, topic, 10)
    produce(broker, topic, 3, partition=1)
    rows = records_of(spark, orders, "ingest", {topic: {0: 2}}, {topic: {0: 5}}, {})
    wanted = spark.createDataFrame([], COLUMNS).schema
    assert rows.select(*wanted.names).schema.simpleString() == wanted.simpleString()
    assert [(row.offset, row.value, row.key, row.headers) for row in rows.orderBy("offset").collect()] == [
        (offset, b"%d" % offset, b"k", [Row(key="h", value=b"1")]) for offset in (2, 3, 4)
    ]
    both = records_of(spark, orders, "ingest", {topic: {0: 9, 1: 0}}, {topic: {0: 10, 1: 2}}, {})
    assert places(both) == [(topic, 0, 9), (topic, 1, 0), (topic, 1, 1)]
    assert both.count() == 3, "executed again, it reads the same"


def test_several_topics_are_read_at_once_by_name_or_by_pattern(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    names = [f"{topic}.a", f"{topic}.b"]
    for name in names:
        produce(broker, name, 4)
    pattern = replace(orders, topics=(), topics_pattern=rf"{topic}\.[ab]")
    start: Offsets = {names[0]: {0: 3}, names[1]: {0: 2}}
    rows = records_of(spark, pattern, "ingest", start, {name: {0: 4} for name in names}, {})
    assert places(rows) == [(names[0], 0, 3), (names[1], 0, 2), (names[1], 0, 3)]


def test_segments_give_the_same_rows_as_the_connector(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    produce(broker, topic, 10)
    produce(broker, topic, 3, partition=1)
    settings = replace(orders, backfill_from="segments", log_dirs=(str(broker.data_dir),))
    ids = {topic: look(orders, list)[topic].id}
    start, end = {topic: {0: 2}}, {topic: {0: 7}}
    history = records_of(spark, settings, "backfill", start, end, ids)
    assert places(history) == [(topic, 0, offset) for offset in range(2, 7)], "nothing of a-1, which is there too"
    assertDataFrameEqual(history, records_of(spark, settings, "ingest", start, end, ids))
    with pytest.raises(PipelineError, match=f"is not of the brokers' topic {topic}: its topic id is {ids[topic]}"):
        records_of(spark, settings, "backfill", start, end, {topic: str(uuid.uuid4())})
    with pytest.raises(PipelineError, match=f"lacks {topic}-7; set log-dirs to all log.dirs of a broker that has them"):
        records_of(spark, settings, "backfill", {topic: {0: 0, 7: 0}}, {topic: {0: 1, 7: 1}}, ids)
    with pytest.raises(PipelineError, match="has no partition of other"):
        records_of(spark, settings, "backfill", {topic: {0: 0}, "other": {0: 0}}, {topic: {0: 1}, "other": {0: 1}}, ids)


class Session:
    """A stand-in for a Spark session; registering raises `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.registered: list[type] = []
        self.given: dict[str, str] = {}
        self.dataSource = SimpleNamespace(register=self._register)
        self.read: Any = SimpleNamespace(format=lambda _: self.read, options=self._options, load=lambda: "rows")
        self._error = error

    def _register(self, source: type) -> None:
        if self._error:
            raise self._error
        self.registered.append(source)

    def _options(self, **options: str) -> Any:
        self.given = options
        return self.read


def of_segments(session: Any, log_dir: Path, ids: dict[str, str] | None = None) -> object:
    (log_dir / "t-0").mkdir(exist_ok=True)
    (log_dir / "t-1").mkdir(exist_ok=True)
    settings = make_settings({"topics": ["t"], "backfill_from": "segments", "log_dirs": [str(log_dir)]})
    return records_of(session, settings, "backfill", {"t": {0: 3}}, {"t": {0: 4}}, ids or {})


def test_the_source_is_registered_and_gets_the_partitions_to_read(tmp_path: Path) -> None:
    session = Session()
    assert of_segments(session, tmp_path) == "rows"
    assert session.registered == [SegmentSource]
    assert session.given["startingOffsets"] == '{"t": {"0": 3, "1": -2}}'
    assert session.given["endingOffsets"] == '{"t": {"0": 4, "1": -2}}'


def test_a_source_that_pyspark_found_itself_is_used(tmp_path: Path) -> None:
    there = AnalysisException("it is there", errorClass="DATA_SOURCE_ALREADY_EXISTS", messageParameters={})
    assert of_segments(Session(there), tmp_path) == "rows"
    with pytest.raises(AnalysisException, match="it is not"):
        of_segments(Session(AnalysisException("it is not")), tmp_path)


@pytest.mark.parametrize("text", ["", "version: 0", "version: 0\ntopic_id: ???", "version: 0\ntopic_id: "])
def test_a_log_without_a_topic_id_is_accepted(tmp_path: Path, text: str) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0/partition.metadata").write_text(text)
    assert of_segments(Session(), tmp_path, {"t": str(uuid.uuid4())}) == "rows"


def test_the_topic_id_of_a_log_is_compared_in_kafkas_format(tmp_path: Path) -> None:
    one = uuid.uuid4()
    (tmp_path / "t-0").mkdir()
    topic_id = base64.urlsafe_b64encode(one.bytes).decode().rstrip("=")
    (tmp_path / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    assert of_segments(Session(), tmp_path, {"t": str(one)}) == "rows"
    with pytest.raises(PipelineError, match=f"its topic id is {one}, the brokers' is .*; set log-dirs to"):
        of_segments(Session(), tmp_path, {"t": str(uuid.uuid4())})

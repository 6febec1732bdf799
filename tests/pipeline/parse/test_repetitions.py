"""Duplicate rows are the same as in a model in plain Python, whatever the number of batches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.pipeline.parse.repetitions import EVENT_US, PLACE, repeated_places

NOON_US = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
SECOND_US = 1_000_000
DELAY_S = 60
DELAY = timedelta(seconds=DELAY_S)

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """A good row: its key, seconds after noon, and its place."""

    key: tuple[int, str]
    seconds: float
    place: Place


def model(events: Iterable[Event], stayed: list[Event], delay_s: float = DELAY_S) -> set[Place]:
    """Returns the places of duplicates; adds the other events to `stayed`."""
    repeated = set()
    for event in sorted(events, key=lambda one: one.place):
        if any(one.key == event.key and abs(one.seconds - event.seconds) <= delay_s for one in stayed):
            repeated.add(event.place)
        else:
            stayed.append(event)
    return repeated


def rows_of(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    """Parsed rows without a reason."""
    content = [((*one.key, "more"), _micros(one), *one.place) for one in events]
    schema = "data STRUCT<id: LONG, shop: STRING, more: STRING>, us LONG, topic STRING, partition INT, offset LONG"
    return spark.createDataFrame(content, schema).withColumn("event_time", sf.timestamp_micros("us")).drop("us")


def known_of(spark: SparkSession, stayed: Iterable[Event]) -> DataFrame:
    return spark.createDataFrame([(*one.key, _micros(one)) for one in stayed], f"id LONG, shop STRING, {EVENT_US} LONG")


def _micros(event: Event) -> int:
    return NOON_US + round(event.seconds * SECOND_US)


def found(
    spark: SparkSession, events: Sequence[Event], stayed: Sequence[Event] | None = None, few: bool = False
) -> set[Place]:
    known = None if stayed is None else known_of(spark, stayed)
    places = repeated_places(rows_of(spark, events).repartition(3), known, ["id", "shop"], DELAY, few)
    assert places.columns == list(PLACE)
    content = [tuple(row) for row in places.collect()]
    assert len(set(content)) == len(content), "a place is returned once"
    return set(content)


def random_events(dice: random.Random, count: int, *, scattered: bool) -> list[Event]:
    """Events of few keys, close in time; a key is in one partition, or in any."""
    next_offset: dict[tuple[str, int], int] = {}
    events = []
    for _ in range(count):
        key = (dice.randint(0, 3), dice.choice(["a", "b"]))
        seconds = dice.choice([0, 1, -1, 0.000001]) + DELAY_S * dice.randint(-4, 4)
        topic, number = dice.choice(["t", "u"]) if scattered else "t", dice.randint(0, 3) if scattered else key[0]
        offset = next_offset.get((topic, number), 0)
        next_offset[topic, number] = offset + dice.randint(1, 3)
        events.append(Event(key, seconds, (topic, number, offset)))
    return events


@pytest.mark.parametrize("seed", range(4))
def test_duplicates_are_the_same_as_in_the_model(spark: SparkSession, seed: int) -> None:
    dice = random.Random(seed)
    events, earlier = (random_events(dice, count, scattered=True) for count in (120, 40))
    repeated = model(events, [])
    assert 0 < len(repeated) < len(events)
    assert found(spark, events) == repeated
    stayed: list[Event] = []
    model(earlier, stayed)
    known = list(stayed)
    wanted = model(events, stayed)
    assert wanted != repeated
    assert found(spark, events, known) == wanted
    assert found(spark, events, known, few=True) == wanted


@pytest.mark.parametrize("batches", [2, 3, 5])
def test_the_kept_rows_do_not_depend_on_the_number_of_batches(spark: SparkSession, batches: int) -> None:
    """Each partition is split separately: a batch has a part of each. No key is in two partitions."""
    dice = random.Random(batches)
    events = random_events(dice, 150, scattered=False)
    at_once = {one.place for one in events} - model(events, [])
    cuts = {number: sorted(dice.randint(0, 100) for _ in range(batches - 1)) for number in range(4)}
    stayed: list[Event] = []
    for batch in range(batches):
        part = [one for one in events if sum(one.place[2] >= cut for cut in cuts[one.place[1]]) == batch]
        repeated = found(spark, part, stayed, few=batch % 2 == 0)
        stayed += [one for one in part if one.place not in repeated]
    assert {one.place for one in stayed} == at_once


def test_equal_keys_are_duplicates_up_to_the_delay_and_not_a_microsecond_beyond(spark: SparkSession) -> None:
    def at(*seconds: float) -> list[Event]:
        return [Event((1, "a"), one, ("t", 0, offset)) for offset, one in enumerate(seconds)]

    assert found(spark, at(0, DELAY_S)) == {("t", 0, 1)}
    assert found(spark, at(0, DELAY_S + 0.000001)) == set()
    assert found(spark, at(0, -DELAY_S)) == {("t", 0, 1)}
    assert found(spark, at(0, -DELAY_S - 0.000001)) == set()
    assert found(spark, at(0, 50, 100)) == {("t", 0, 1)}, "the second is gone, so the third is near to none that stayed"


def test_rows_without_a_known_event_of_their_key_are_not_duplicates(spark: SparkSession) -> None:
    events = [Event((1, "a"), 0, ("t", 0, 0)), Event((1, "b"), 0, ("t", 0, 1)), Event((2, "a"), 0, ("t", 0, 2))]
    known = [Event((3, "a"), 0, ("t", 0, 0))] * 3
    assert found(spark, events, known) == set()
    assert found(spark, [], known) == set()
    assert found(spark, events, []) == set()


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("BINARY", ["\x00", "\x00\x00", ""]),
        ("DATE", ["2024-02-29", "0001-01-01", "+10000-01-01"]),
        ("TIMESTAMP", ["2024-02-29 01:02:03.000004", "0001-01-01 00:00:00", "+10000-01-01 00:00:00"]),
        ("TIMESTAMP_NTZ", ["2024-02-29 01:02:03.000004", "+10000-01-01 00:00:00"]),
        ("DECIMAL(38, 2)", ["0.01", "-99999999999999999999.99"]),
        ("BOOLEAN", ["true", "false"]),
        ("TINYINT", ["-128", "127"]),
    ],
)
def test_a_key_can_have_any_supported_type(spark: SparkSession, kind: str, texts: list[str]) -> None:
    content = [(text, offset) for offset, text in enumerate(texts * 2)]
    rows = spark.createDataFrame(content, "text STRING, offset LONG").select(
        sf.struct(sf.col("text").cast(kind).alias("id")).alias("data"),
        sf.timestamp_micros(sf.lit(NOON_US)).alias("event_time"),
        sf.lit("t").alias("topic"),
        sf.lit(0).alias("partition"),
        "offset",
    )
    places: list[Any] = repeated_places(rows, None, ["id"], DELAY).collect()
    assert sorted(row["offset"] for row in places) == list(range(len(texts), 2 * len(texts)))


def test_the_events_of_a_key_in_one_partition_do_not_occupy_many_tasks(spark: SparkSession) -> None:
    """A key has thousands of events, which reach a task in several parts."""
    events = [Event((1, "a"), number * (DELAY_S + 1), ("t", 0, number)) for number in range(12_000)]
    again = [Event(one.key, one.seconds + DELAY_S / 2, ("t", 0, one.place[2] + 12_000)) for one in events]
    assert found(spark, [*again, *events]) == {one.place for one in again}

"""The record of a backfill: borders that follow from it alone, and what is made of one that is damaged or foreign."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.pipeline.batch_tables import BatchTables
from odradek.pipeline.chunks import Chunk
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.handover import Handover, finished_handover, read_handover
from odradek.pipeline.ledger import Ledger
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.topic_ids import Topic
from tests.pipeline.ledger_rows import batch, enter

FINGERPRINT = {"name": "orders", "topics": ["a", "b"], "dedup-keys": {}}
RECORD = Handover(
    FINGERPRINT, {"a": "1", "b": "2"}, {"a": {0: 5, 1: 0}, "b": {0: 7}}, {"a": {0: 25, 1: 3}, "b": {0: 7}}, 5
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings({"name": "orders", "lake": str(tmp_path), "topics": ["a", "b"]})


def beginning(settings: Settings) -> Handover | None:
    """What an ingest goes on from."""
    places = Places.of(settings)
    tables = BatchTables(settings, places)
    return finished_handover(places, "orders", tables, Ledger(places.ledger), FINGERPRINT)


def enter_chunks(settings: Settings, count: int) -> None:
    for number in range(count):
        start, end = RECORD.border(number), RECORD.border(number + 1)
        enter(settings, batch(number, {}, job="backfill", good=8, dead=2, start_offsets=start, end_offsets=end))


@pytest.mark.parametrize("size", [1, 3, 5, 22, 23, 1000])
def test_chunks_follow_on_each_other_from_the_start_to_the_end(size: int) -> None:
    record = replace(RECORD, offsets_per_chunk=size)
    borders = [record.border(number) for number in range(record.chunks + 1)]
    assert (borders[0], borders[-1]) == (record.starts, record.ends)
    sizes = [Chunk(start, end).offsets() for start, end in itertools.pairwise(borders)]
    assert sum(sizes) == record.offsets == 23
    assert max(sizes) <= size + 2, "at most one more for each partition but one"
    assert min(sizes) >= 0


def test_a_record_is_read_as_it_was_written(settings: Settings) -> None:
    places = Places.of(settings)
    assert read_handover(places) is None
    RECORD.save(places)
    assert read_handover(places) == RECORD


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"pipeline": 5}', "cut", json.dumps({"end_offsets": {"a": 5}})],
)
def test_a_torn_record_is_an_error_that_names_it(settings: Settings, text: str) -> None:
    places = Places.of(settings)
    RECORD.save(places)
    whole = places.handover.read_text()
    places.handover.write_text(whole[: len(whole) // 2] if text == "cut" else text)
    with pytest.raises(PipelineError, match=r"handover\.json, which says where the backfill ends, is damaged"):
        beginning(settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"end_offsets": {"a": {"0": 4, "1": 3}, "b": {"0": 7}}},
        {"start_offsets": {"c": {"0": 1}}},
        {"offsets_per_chunk": 0},
    ],
)
def test_offsets_that_cannot_be_are_damage(settings: Settings, changes: dict[str, object]) -> None:
    places = Places.of(settings)
    RECORD.save(places)
    places.handover.write_text(json.dumps({**json.loads(places.handover.read_text()), **changes}))
    with pytest.raises(PipelineError, match="is damaged"):
        read_handover(places)


def test_an_ingest_begins_at_the_end_and_not_before(settings: Settings) -> None:
    assert beginning(settings) is None
    RECORD.save(Places.of(settings))
    enter_chunks(settings, 2)
    with pytest.raises(PipelineError, match=r"the backfill is at 9 of 23 offsets; run .* to its end"):
        beginning(settings)
    ledger = Places.of(settings).ledger
    ledger.rename(ledger.with_name("away"))
    enter_chunks(settings, RECORD.chunks)
    assert beginning(settings) == RECORD


def test_a_record_that_is_gone_or_of_another_backfill_is_an_error(settings: Settings) -> None:
    places = Places.of(settings)
    enter_chunks(settings, RECORD.chunks)
    with pytest.raises(PipelineError, match=r"handover\.json, .* is gone; put it back"):
        beginning(settings)
    replace(RECORD, offsets_per_chunk=6).save(places)
    with pytest.raises(PipelineError, match=r"has chunks that .*handover\.json does not know"):
        beginning(settings)
    replace(RECORD, pipeline={**FINGERPRINT, "topics": ["a"]}).save(places)
    with pytest.raises(PipelineError, match=r"another backfill: topics was \['a'\] and is \['a', 'b'\]"):
        beginning(settings)


def test_what_can_be_read_of_a_chunk_is_within_the_logs() -> None:
    chunk = Chunk({"a": {0: 5, 1: 0}, "b": {0: 7}, "c": {0: 0}}, {"a": {0: 25, 1: 3}, "b": {0: 7}, "c": {0: 9}})
    topics = {
        "a": Topic("1", {0: 10, 1: 4}, {0: 20, 1: 9}),
        "b": Topic("2", {0: 0}, {0: 7}),
        "c": Topic("4", {0: 0}, {0: 99}),
    }
    assert chunk.readable(topics) == Chunk({"a": {0: 10}, "c": {0: 0}}, {"a": {0: 20}, "c": {0: 9}})
    assert chunk.readable(topics, ["c"]) == Chunk({"a": {0: 10}}, {"a": {0: 20}})
    assert chunk.without_empty().start == {"a": {0: 5, 1: 0}, "c": {0: 0}}
    assert (chunk.offsets(), chunk.only("a").offsets()) == (32, 23)

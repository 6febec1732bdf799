"""Readers and writers in steps give the results of the plain ones, and yield within every array."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Generator
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.compiler import decode, encode, reader_in_steps, writer_in_steps
from odradek.protocol.documents import UNKNOWN_TAGS, to_document
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.registry import message_class
from odradek.protocol.primitives import LONGEST_REPLACED, MOST_TAGS, unsigned_varint
from odradek.protocol.reader_source import COPIED_PER_STEP
from odradek.protocol.schema import Message, array, int8, message, string, uuid
from odradek.protocol.source_lines import ELEMENTS_PER_STEP
from tests.protocol.vector_files import MESSAGE_FILES, cut_points, message_vectors

MANY = 3 * ELEMENTS_PER_STEP + 10
MEMORY = 1 << 30

compiled_reader, compiled_writer = cache(reader_in_steps), cache(writer_in_steps)


def run(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Returns the value, and the number of steps before the last."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def write(value: Message, version: int) -> tuple[bytes, int]:
    parts: list[Any] = []
    _, steps = run(compiled_writer(type(value), version)(value, parts))
    return b"".join(parts), steps


def without_unknown_tags(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: without_unknown_tags(value) for name, value in document.items() if name != UNKNOWN_TAGS}
    return [without_unknown_tags(value) for value in document] if isinstance(document, list) else document


@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_every_vector_is_read_and_written_the_same_in_steps_except_unknown_tags(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        version, data = vector["version"], bytes.fromhex(vector["hex"])
        (value, position), _ = run(compiled_reader(cls, version)(data, 0, MEMORY))
        whole = decode(cls, version, data)
        assert position == len(data)
        assert to_document(value, version) == without_unknown_tags(to_document(whole, version))
        assert write(whole, version)[0] == data


@pytest.mark.soak("every cut of every vector in steps", minutes=2)
@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_truncated_bytes_raise_in_steps_too(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        data = bytes.fromhex(vector["hex"])
        reader = compiled_reader(cls, vector["version"])
        for size in cut_points(data):
            with pytest.raises(MalformedMessage):
                run(reader(data[:size], 0, MEMORY))


@message(kind="data", versions=(0, 1), flexible=1)
class Arrays(Message):
    names: list[str] = array(string)
    ids: list[UUID] = array(uuid)
    numbers: list[int] = array(int8)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "value",
    [
        Arrays(names=["n"] * MANY),
        Arrays(ids=[UUID(int=number) for number in range(MANY)]),
        Arrays(numbers=[number % 100 for number in range(MANY)]),
    ],
)
def test_no_array_is_read_in_one_step(value: Arrays, version: int) -> None:
    data = encode(value, version)
    (again, position), steps = run(reader_in_steps(Arrays, version)(data, 0, MEMORY))
    assert (again, position) == (value, len(data))
    assert steps >= 2
    with pytest.raises(MalformedMessage):
        run(reader_in_steps(Arrays, version)(data[:-1], 0, MEMORY))


@message(kind="data", versions=(0, 0), flexible=0)
class Tagged(Message):
    class Part(Message):
        name: str = string()

    parts: list[Tagged.Part] = array()


@pytest.mark.parametrize("value", [Arrays(names=["n"] * MANY), Arrays(ids=[UUID(int=1)] * MANY)])
def test_no_array_is_written_in_one_step(value: Arrays) -> None:
    assert write(value, 1)[0] == encode(value, 1)
    assert write(value, 1)[1] >= 3


def test_unknown_tagged_fields_are_skipped_in_steps() -> None:
    tags = unsigned_varint(MOST_TAGS) + b"".join(unsigned_varint(tag) + b"\1x" for tag in range(MOST_TAGS))
    elements = MANY // MOST_TAGS + 1
    data = unsigned_varint(elements + 1) + (b"\2n" + tags) * elements + tags
    (value, position), steps = run(reader_in_steps(Tagged, 0)(data, 0, MEMORY))
    assert position == len(data)
    assert value == Tagged(parts=[Tagged.Part(name="n") for _ in range(elements)])
    assert steps >= 3


def test_too_many_tagged_fields_are_refused_before_they_are_read() -> None:
    data = b"\1" + unsigned_varint(MOST_TAGS + 1) + b"\1\0" * (MOST_TAGS + 1)
    with pytest.raises(MalformedMessage, match="1001 tagged fields"):
        run(reader_in_steps(Tagged, 0)(data, 0, MEMORY))
    with pytest.raises(MalformedMessage, match="1001 tagged fields"):
        decode(Tagged, 0, data)


def test_elements_beyond_the_memory_limit_are_refused_before_they_are_built() -> None:
    names = encode(DescribeGroupsRequest(groups=[""] * 100_000), 0)
    nested = encode(Tagged(parts=[Tagged.Part(name="n") for _ in range(10_000)]), 0)
    for cls, data in ((DescribeGroupsRequest, names), (Tagged, nested)):
        reader = reader_in_steps(cls, 0)
        tracemalloc.start()
        with pytest.raises(MalformedMessage, match="memory limit"):
            run(reader(data, 0, 100_000))
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.stop()


def test_long_strings_end_a_step_too() -> None:
    bad = b"\xff" * LONGEST_REPLACED
    data = unsigned_varint(101) + (unsigned_varint(len(bad) + 1) + bad) * 100 + b"\1\1\0"
    (value, _), steps = run(reader_in_steps(Arrays, 1)(data, 0, MEMORY))
    assert value.names == ["\ufffd" * LONGEST_REPLACED] * 100
    assert steps >= 5


def test_a_step_counts_the_elements_of_nested_arrays() -> None:
    topic, of_group = OffsetFetchRequest.OffsetFetchRequestTopics, OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [topic(name="t", partition_indexes=[1]) for _ in range(100)]
    request = OffsetFetchRequest(groups=[of_group(group_id="g", topics=topics) for _ in range(MANY // 100)])
    assert run(reader_in_steps(OffsetFetchRequest, 8)(encode(request, 8), 0, MEMORY))[1] >= 3
    assert write(request, 8)[1] >= 3


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_built() -> None:
    with pytest.raises(MalformedMessage, match="elements in the"):
        run(reader_in_steps(DescribeGroupsRequest, 0)(b"\x7f\xff\xff\xff\0\0", 0, MEMORY))


def test_large_records_are_copied_in_steps() -> None:
    records = random.Random(1).randbytes(5 * COPIED_PER_STEP + 10)
    partitions = [ProduceRequest.PartitionProduceData(index=index, records=records) for index in range(2)]
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=partitions)]
    data = encode(ProduceRequest(topic_data=topics), 9)
    (request, position), steps = run(reader_in_steps(ProduceRequest, 9)(data, 0, MEMORY))
    assert position == len(data)
    assert [partition.records for partition in request.topic_data[0].partition_data] == [records] * 2
    assert steps >= 12
    with pytest.raises(MalformedMessage):
        run(reader_in_steps(ProduceRequest, 9)(data[:-COPIED_PER_STEP], 0, MEMORY))

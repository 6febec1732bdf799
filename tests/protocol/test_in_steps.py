"""Readers and writers in steps do what the plain ones do, and give others their turn within every array."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.compiler import encode, reader_in_steps, writer_in_steps
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.registry import message_class
from odradek.protocol.primitives import unsigned_varint
from odradek.protocol.schema import Message, array, int8, message, string, uuid
from odradek.protocol.source_lines import ELEMENTS_PER_STEP
from tests.protocol.vector_files import MESSAGE_FILES, cut_points, message_vectors

MANY = 3 * ELEMENTS_PER_STEP + 10


def run(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """The value, and how many steps were not the last."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def write(value: Message, version: int) -> tuple[bytes, int]:
    parts: list[Any] = []
    _, steps = run(writer_in_steps(type(value), version)(value, parts))
    return b"".join(parts), steps


@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_every_vector_is_read_and_written_the_same_in_steps(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        version, data = vector["version"], bytes.fromhex(vector["hex"])
        (value, position), _ = run(reader_in_steps(cls, version)(data, 0))
        assert (position, encode(value, version)) == (len(data), data)
        assert write(value, version)[0] == data


@pytest.mark.soak("every cut of every vector in steps", minutes=2)
@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_a_cut_raises_in_steps_too(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        data = bytes.fromhex(vector["hex"])
        reader = reader_in_steps(cls, vector["version"])
        for size in cut_points(data):
            with pytest.raises(MalformedMessage):
                run(reader(data[:size], 0))


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
    (again, position), steps = run(reader_in_steps(Arrays, version)(data, 0))
    assert (again, position) == (value, len(data))
    assert steps >= 2
    with pytest.raises(MalformedMessage):
        run(reader_in_steps(Arrays, version)(data[:-1], 0))


@pytest.mark.parametrize("value", [Arrays(names=["n"] * MANY), Arrays(ids=[UUID(int=1)] * MANY)])
def test_no_array_is_written_in_one_step(value: Arrays) -> None:
    assert write(value, 1)[0] == encode(value, 1)
    assert write(value, 1)[1] >= 3


def test_tagged_fields_that_nobody_knows_are_read_in_steps() -> None:
    tags = b"".join(unsigned_varint(tag) + b"\0" for tag in range(MANY))
    data = encode(Arrays(), 1)[:-1] + unsigned_varint(MANY) + tags
    (value, position), steps = run(reader_in_steps(Arrays, 1)(data, 0))
    assert position == len(data)
    assert value.unknown_tagged_fields == [(tag, b"") for tag in range(MANY)]
    assert steps >= 3


def test_a_step_is_counted_through_nested_arrays() -> None:
    topic, of_group = OffsetFetchRequest.OffsetFetchRequestTopics, OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [topic(name="t", partition_indexes=[1]) for _ in range(100)]
    request = OffsetFetchRequest(groups=[of_group(group_id="g", topics=topics) for _ in range(MANY // 100)])
    assert run(reader_in_steps(OffsetFetchRequest, 8)(encode(request, 8), 0))[1] >= 3
    assert write(request, 8)[1] >= 3


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_made() -> None:
    with pytest.raises(MalformedMessage, match="elements in the"):
        run(reader_in_steps(DescribeGroupsRequest, 0)(b"\x7f\xff\xff\xff\0\0", 0))

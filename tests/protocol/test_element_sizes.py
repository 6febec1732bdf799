"""The memory that an array element is charged for, compared with what it takes."""

from __future__ import annotations

import tracemalloc

import pytest

from odradek.protocol.compiler import decode, encode
from odradek.protocol.element_sizes import LOOKED_UP_BYTES, answered_bytes, handled_bytes, least_bytes, memory_bytes
from odradek.protocol.messages.registry import NAMES, message_class
from odradek.protocol.schema import ZERO_UUID, Field, Message

COUNT = 2000
ARRAYS = [
    (name, field.attribute)
    for name in NAMES
    if name.endswith("Request")
    for field in message_class(name).__schema__.plain_fields(message_class(name).__schema__.versions.highest)
    if field.type == "array"
]


def least_element(field: Field) -> object:
    if field.element == "struct":
        return field.structure()
    return {"string": "", "bytes": b"", "uuid": ZERO_UUID}.get(field.element or "", 0)


@pytest.mark.parametrize(("name", "attribute"), ARRAYS)
def test_the_declared_element_sizes_are_right_for_every_request_array(name: str, attribute: str) -> None:
    cls = message_class(name)
    version = cls.__schema__.versions.highest
    (field,) = [field for field in cls.__schema__.fields if field.attribute == attribute]
    flexible = version in cls.__schema__.flexible
    one, many = of_elements(cls, field, 1), of_elements(cls, field, COUNT)
    size = (len(encode(many, version)) - len(encode(one, version))) / (COUNT - 1)
    assert least_bytes(field, version, flexible) <= size + 0.01
    data = encode(many, version)
    decode(cls, version, data)
    tracemalloc.start()
    read = decode(cls, version, data)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(getattr(read, attribute)) == COUNT
    assert taken <= memory_bytes(field, version) * COUNT * 1.1 + 4096


def of_elements(cls: type[Message], field: Field, count: int) -> Message:
    return cls(**{field.attribute: [least_element(field)] * count})


ANSWERED = [name for name in NAMES if name.endswith("Response")]


@pytest.mark.parametrize("name", ANSWERED)
def test_the_declared_response_memory_is_right_for_every_response(name: str) -> None:
    cls = message_class(name)
    for field in cls.__schema__.fields:
        if field.element == "struct":
            fields = field.structure.__schema__.fields
            arrays: dict[str, object] = {each.attribute: None for each in fields if each.type in ("array", "struct")}
            field.structure(**arrays)
            tracemalloc.start()
            made = [field.structure(**arrays) for _ in range(COUNT)]
            taken = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert taken <= answered_bytes(cls) * len(made) * 1.1 + 4096


def test_names_are_charged_for_their_handling_and_numbers_are_not() -> None:
    names = message_class("DescribeGroupsRequest").__schema__.fields[0]
    numbers = message_class("CreateTopicsRequest").__schema__.fields[0].structure.__schema__.fields[3].structure
    (brokers,) = [field for field in numbers.__schema__.fields if field.element == "int32"]
    assert handled_bytes(names, 500) == 500
    assert handled_bytes(names, 0) == LOOKED_UP_BYTES
    assert handled_bytes(brokers, 500) == 0

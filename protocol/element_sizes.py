"""The size of an array's elements: the minimum on the wire, and an estimate of their memory once decoded.

`least_bytes` limits a count before anything is built: no element is shorter. `memory_bytes` estimates CPython's objects
for an element whose strings, bytes and arrays are short. Longer contents take about as many bytes of memory as on the
wire. Arrays within the element are charged when their own counts are read.
"""

from __future__ import annotations

import sys

from odradek.protocol.schema import FIXED, Field, Message

LIST_SLOT_BYTES = 8
INT_BYTES = 32
TEXT_BYTES = 64
"""A str or bytes object of up to 15 bytes."""
LIST_BYTES = 64
UUID_BYTES = 112
LOOKED_UP_BYTES = 90
"""An entry of a growing dict or set."""
_SMALL = ("bool", "int8")
"""CPython caches the objects for these types' values."""


def least_bytes(field: Field, version: int, flexible: bool) -> int:
    """Returns the fewest bytes of one element of this array on the wire."""
    if field.element == "struct":
        return _least_of_structure(field.structure, version, flexible)
    return _least_of(field.element or "", flexible and field.flexible)


def memory_bytes(field: Field, version: int) -> int:
    """Returns the memory of one element of this array, with its slot in the list."""
    if field.element == "struct":
        return LIST_SLOT_BYTES + _memory_of_structure(field.structure, version)
    return LIST_SLOT_BYTES + _memory_of(field.element or "")


def handled_bytes(field: Field, answered: int) -> int:
    """Returns the memory used to handle one element of this array: its entry in a lookup table, or its response."""
    return 0 if field.element in FIXED else max(LOOKED_UP_BYTES, answered)


def answered_bytes(response: type[Message]) -> int:
    """Returns the memory of the largest element, without arrays, that this response may have per requested item."""
    elements = [field.structure for field in response.__schema__.fields if field.element == "struct"]
    return max((LIST_SLOT_BYTES + _object_bytes(each) for each in elements), default=0)


def _least_of(kind: str, compact: bool) -> int:
    if kind in FIXED:
        return FIXED[kind][1]
    if compact:
        return 1
    return 2 if kind == "string" else 4


def _least_of_structure(cls: type[Message], version: int, flexible: bool) -> int:
    size = 1 if flexible else 0
    for field in cls.__schema__.plain_fields(version):
        if field.type != "struct":
            size += _least_of(field.type, flexible and field.flexible)
        elif version in field.nullable:
            size += 1
        else:
            size += _least_of_structure(field.structure, version, flexible)
    return max(size, 1)


def _memory_of(kind: str) -> int:
    if kind in _SMALL:
        return 0
    if kind == "uuid":
        return UUID_BYTES
    if kind in FIXED:
        return INT_BYTES
    return LIST_BYTES if kind == "array" else TEXT_BYTES


def _memory_of_structure(cls: type[Message], version: int) -> int:
    size = _object_bytes(cls)
    for field in cls.__schema__.fields:
        if field.type == "struct":
            size += _memory_of_structure(field.structure, version) if version in field.versions else 0
        elif field.is_plain_in(version):
            size += _memory_of(field.type)
        elif field.type == "array":
            size += LIST_BYTES
    return size


def _object_bytes(cls: type[Message]) -> int:
    return -(-sys.getsizeof(object.__new__(cls)) // 16) * 16

"""The elements of a raw snappy block, which say where it can be cut. The library only decompresses whole blocks.

Each element makes some of the output: a literal holds its bytes, and a copy repeats bytes that were made before (the
format is in format_description.txt of google/snappy). All encoders that we know begin anew every 64 KB, so their copies
reach no further back. Compiled, see record_walk.
"""

from typing import Final

from mypy_extensions import i64

UNBOUNDED: Final = 1 << 62
_LONGEST_SHORT_LITERAL: Final = 60


class SnappyElements:
    """The elements at the start of `data` that lie within it, until they make `least_bytes` of output.

    `size`: their bytes of `data`. `made`: how much output they make. `reach`: how far before this output a copy begins;
    UNBOUNDED for an invalid one.
    """

    def __init__(self, data: bytes, least_bytes: i64) -> None:
        end: i64 = len(data)
        position: i64 = 0
        made: i64 = 0
        reach: i64 = 0
        while position < end and made < least_bytes:
            tag: i64 = data[position]
            kind: i64 = tag & 3
            length: i64 = (tag >> 2) + 1
            size: i64 = 1
            if kind == 0:
                if length > _LONGEST_SHORT_LITERAL:
                    size = length - _LONGEST_SHORT_LITERAL + 1
                    if position + size > end:
                        break
                    length = _little_endian(data, position + 1, size - 1) + 1
                size += length
                if position + size > end:
                    break
            else:
                size = 2 if kind == 1 else 3 if kind == 2 else 5
                if position + size > end:
                    break
                offset: i64 = _little_endian(data, position + 1, size - 1)
                if kind == 1:
                    length = 4 + (tag >> 2 & 7)
                    offset |= tag >> 5 << 8
                if offset == 0:
                    reach = UNBOUNDED
                elif offset - made > reach:
                    reach = offset - made
            position += size
            made += length
        self.size: i64 = position
        self.made: i64 = made
        self.reach: i64 = reach


def _little_endian(data: bytes, position: i64, size: i64) -> i64:
    number: i64 = 0
    index: i64 = 0
    byte: i64
    while index < size:
        byte = data[position + index]
        number |= byte << (8 * index)
        index += 1
    return number

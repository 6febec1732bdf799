"""Finds where the records of a batch start: the only loop over every record of a segment.

Compiled where setup can (compiled_modules.txt), which is three times as fast as CPython; hence `bytes`, ints and lists.
"""


def follow(data: bytes, position: int, count: int, starts: list[int]) -> int:
    """Appends the positions of `count` consecutive records to `starts`. Returns the end of the last record.

    A negative or too large length yields wrong positions, but never reads beyond the data: the caller must check the
    lengths again. Raises IndexError if a record would start after the end of the data."""
    for _ in range(count):
        starts.append(position)
        byte = data[position]
        position += 1
        length = byte & 127
        shift = 7
        while byte > 127 and shift < 35:
            byte = data[position]
            position += 1
            length |= (byte & 127) << shift
            shift += 7
        position += length >> 1
    return position

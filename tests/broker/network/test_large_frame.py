"""A large frame is assembled from the received pieces."""

from __future__ import annotations

import random
import tracemalloc
from functools import cache

import pytest

from odradek.broker.network.large_frame import (
    FIRST_PIECE_BYTES,
    PIECE_BYTES,
    RESERVED_FROM_BYTES,
    TURN_BYTES,
    LargeFrame,
)


def assembled_frame(frame: bytes, begun: int, chance: random.Random) -> bytes:
    """Assembles the frame from reads of random sizes."""
    large = LargeFrame(frame[:begun], len(frame))
    position = begun
    while True:
        room = large.room()
        count = chance.randint(1, len(room))
        room[:count] = frame[position : position + count]
        position += count
        large.filled(count)
        if large.is_whole:
            assert position == len(frame)
            return large.whole()


@cache
def random_bytes() -> bytes:
    return random.Random(1).randbytes(RESERVED_FROM_BYTES)


@pytest.mark.parametrize("length", [2 * PIECE_BYTES, RESERVED_FROM_BYTES - 1, RESERVED_FROM_BYTES])
@pytest.mark.parametrize("begun", [0, 10, PIECE_BYTES])
def test_a_large_frame_consists_of_the_received_bytes(length: int, begun: int) -> None:
    chance = random.Random(length + begun)
    frame = random_bytes()[:length]
    assert assembled_frame(frame, begun, chance) == frame


def test_memory_for_the_whole_frame_is_reserved_after_an_eighth_of_it() -> None:
    length = RESERVED_FROM_BYTES
    tracemalloc.start()
    try:
        large = LargeFrame(b"", length)
        while (received := large.size - len(large.room())) < length // 8:
            assert tracemalloc.get_traced_memory()[0] < 2 * received + 2 * PIECE_BYTES
            large.filled(len(large.room()))
        held, _ = tracemalloc.get_traced_memory()
        for _ in range(10):
            large.filled(len(large.room()))
        assert length <= held
        assert tracemalloc.get_traced_memory()[0] < held + 1000
    finally:
        tracemalloc.stop()


def test_whoever_sends_a_large_frame_yields_after_so_many_bytes() -> None:
    large = LargeFrame(b"", 4 * TURN_BYTES)
    yields = []
    for received in range(FIRST_PIECE_BYTES, 2 * TURN_BYTES + 1, FIRST_PIECE_BYTES):
        large.filled(FIRST_PIECE_BYTES)
        if large.must_yield():
            yields.append(received)
    assert yields == [TURN_BYTES, 2 * TURN_BYTES]

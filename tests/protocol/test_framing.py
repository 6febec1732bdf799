"""Frames of every API and version, whole, byte by byte, in one stream; and invalid lengths."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from odradek.protocol.compiler import encode, read
from odradek.protocol.documents import to_document
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import PIECE_BYTES, SHORT_BYTES, BadFrame, FrameSplitter, frame, frame_length
from odradek.protocol.headers import (
    ResponseHeader,
    read_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.messages.registry import NAMES, message_class
from odradek.protocol.schema import Message
from tests.protocol.vector_files import message_vectors

FRAMES = list(message_vectors("frames"))
STREAM = b"".join(bytes.fromhex(line["hex"]) for line in FRAMES)
CONTENTS = [bytes.fromhex(line["hex"])[4:] for line in FRAMES]


def test_vectors_have_a_frame_for_every_request_and_response_version() -> None:
    apis = {line["name"] for line in FRAMES}
    assert apis == {name for name in NAMES if name.endswith(("Request", "Response"))}
    versions = sum(
        message_class(name).__schema__.versions.highest - message_class(name).__schema__.versions.lowest + 1
        for name in apis
    )
    assert len(FRAMES) == versions


def test_every_frame_is_decoded_and_encoded_to_the_same_bytes() -> None:
    for line in FRAMES:
        key, version, data = line["apiKey"], line["version"], bytes.fromhex(line["hex"])
        cls = message_class(line["name"])
        if line["type"] == "request":
            header_version = request_header_version(key, version)
            header: Message
            header, position = read_request_header(data, 4)
        else:
            header_version = response_header_version(key, version)
            header, position = read(ResponseHeader, header_version, data, 4)
        assert header_version == line["headerVersion"]
        assert to_document(header, header_version) == line["header"]
        body, end = read(cls, version, data, position)
        assert end == len(data)
        assert json.dumps(to_document(body, version), sort_keys=True) == json.dumps(line["fields"], sort_keys=True)
        assert frame(encode(header, header_version), encode(body, version)) == data


@pytest.mark.parametrize("step", [1, 3, 1000, 65536, len(STREAM)])
def test_a_stream_split_at_any_size_gives_the_same_frames(step: int) -> None:
    splitter = FrameSplitter()
    frames = []
    for start in range(0, len(STREAM), step):
        frames += list(splitter.feed(STREAM[start : start + step]))
    assert frames == CONTENTS


def test_an_incomplete_frame_waits_for_its_rest() -> None:
    data = bytes.fromhex(FRAMES[0]["hex"])
    for size in range(len(data)):
        splitter = FrameSplitter()
        assert list(splitter.feed(data[:size])) == []
        assert list(splitter.feed(data[size:])) == [data[4:]]


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_any_length_are_received_in_reads_of_any_size(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [0, 1, SHORT_BYTES - 4, SHORT_BYTES, SHORT_BYTES + 1, PIECE_BYTES + 1, 3 * PIECE_BYTES]
    contents = [chance.randbytes(length) for length in chance.choices(lengths, k=12)]
    stream = b"".join(map(frame, contents))
    splitter = FrameSplitter()
    frames: list[bytes] = []
    position = 0
    while position < len(stream):
        room = splitter.room()
        count = min(len(stream) - position, len(room) if chance.random() < 0.5 else chance.randint(1, len(room)))
        room[:count] = stream[position : position + count]
        position += count
        frames += splitter.filled(count)
    assert frames == contents


def test_a_long_frame_is_received_into_the_memory_that_it_keeps() -> None:
    data = memoryview(frame(bytes(50 * PIECE_BYTES)))
    splitter = FrameSplitter()
    tracemalloc.start()
    try:
        (whole,) = splitter.feed(data)
        assert tracemalloc.get_traced_memory()[1] < len(whole) + 10_000
    finally:
        tracemalloc.stop()


def test_an_empty_frame_is_a_frame() -> None:
    assert list(FrameSplitter().feed(bytes(8))) == [b"", b""]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, 0x7FFFFFFF])
def test_a_length_that_is_negative_or_above_the_limit_ends_the_stream(length: int) -> None:
    splitter = FrameSplitter(longest=100)
    before = frame(b"whole")
    frames = splitter.feed(before + length.to_bytes(4, "big", signed=True))
    assert next(frames) == b"whole"
    with pytest.raises(BadFrame, match=str(length)):
        next(frames)
    with pytest.raises(BadFrame):
        frame_length(length.to_bytes(4, "big", signed=True), longest=100)


def test_the_longest_allowed_frame_is_accepted() -> None:
    assert list(FrameSplitter(longest=100).feed(frame(bytes(100)))) == [bytes(100)]


def test_every_cut_of_a_request_header_is_refused() -> None:
    for line in FRAMES[::7]:
        if line["type"] == "request":
            data = bytes.fromhex(line["hex"])[4:]
            _, size = read_request_header(data)
            for cut in range(size):
                with pytest.raises(MalformedMessage):
                    read_request_header(data[:cut])

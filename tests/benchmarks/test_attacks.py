"""The attacks are requests that a broker takes for valid, and the client beside them counts what it waits."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.attacks import attacks, create_topics, describe_configs
from benchmarks.beside_attacks import Client, Felt, _felt, table
from benchmarks.wire import create_topic
from odradek.broker.testing import BrokerThread
from odradek.protocol.compiler import read
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.registry import request_class


@pytest.fixture
def thread() -> Iterator[BrokerThread]:
    with tempfile.TemporaryDirectory() as directory, BrokerThread(data_dir=Path(directory) / "data") as thread:
        yield thread


@pytest.mark.parametrize("frame", [describe_configs(), create_topics()])
def test_an_attack_is_one_valid_frame(frame: bytes) -> None:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (4, 6))
    _, position = read(RequestHeader, request_header_version(key, version), frame, 4)
    assert read(request_class(key), version, frame, position)[1] == len(frame)


def test_attacks_have_names_of_their_own() -> None:
    names = [attack.name for attack in attacks()]
    assert len(set(names)) == len(names) >= 8


def test_the_client_beside_an_attack_counts_its_round_trips(thread: BrokerThread) -> None:
    port = int(thread.bootstrap.rpartition(":")[2])
    create_topic(port, "healthy")
    client = Client(port)
    try:
        first = client.round_trips()
        assert first
        assert all(taken > 0 for taken in first)
        assert len(client.round_trips()) >= 1
    finally:
        client.close()


def test_the_table_has_a_line_for_each_attack() -> None:
    rows = [_felt("none", [1.0] * 99 + [50.0]), _felt("large", [2.0] * 10, 3_000_000, 10)]
    assert rows[0] == Felt("none", 1.0, rows[0].p99, 50.0, 0, 0)
    assert 1.0 < rows[0].p99 <= 50.0
    *_, line = table({"odradek": rows}).splitlines()
    assert line == "| large | 2.0 / 2 / 2 | +3 |"

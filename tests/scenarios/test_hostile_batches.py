"""Batches that are small on the wire and large in memory, or just large, do not block other clients.

Turns are measured and judged as turns_of_a_loop.py says.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import record_walk
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import Compression
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import response_header_version
from odradek.protocol.messages.list_offsets import ListOffsetsResponse
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.records import Record, build_batch
from odradek.testing import BrokerThread
from tests.patience import PATIENCE_S
from tests.scenarios.hostile_batches import (
    MEBIBYTE,
    TINY_RECORD,
    batch_of,
    bomb,
    compressed,
    produce_of,
    record_of_headers,
    record_of_time,
    zeros_record,
)
from tests.scenarios.turns_of_a_loop import longest_turn
from tests.soak import rounds
from tests.spawned_broker import SpawnedBroker, spawned_broker
from tests.wire import requests
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

pytestmark = pytest.mark.soak("hostile batches", minutes=1)
PRODUCE_VERSION = 7
SETTINGS = {"message.max.bytes": "104857600"}
TOPIC = "attacked"
LATEST, LARGEST_TIMESTAMP = -1, -3
LATE_MS = 5
BOMBS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
MILLIONS = 50_000 if record_walk.__file__.endswith(".py") else rounds(200_000, in_soak=1_000_000)
"""Plain Python takes twenty times as long for each record, so a few also take many turns."""
RENUMBERED = rounds(100_000, in_soak=300_000)
"""So many would make several times as many calls as a turn may, if one turn did them all."""
PARTS_IN_MEMORY = 8 * MEBIBYTE
INFLATED = rounds(48, in_soak=127) * MEBIBYTE
"""Several times what may be in memory."""
LARGEST = rounds(32, in_soak=128) * MEBIBYTE
LZ4_DECODERS = 2 * 4 * MEBIBYTE
"""Each holds a block of its format. Whether the one of the first batch has gone when the second batch begins depends on
the machine."""


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(SETTINGS) as running:
        with client_of(running) as client:
            create(client)
        yield running


def client_of(broker: BrokerThread) -> RawClient:
    return RawClient(broker.bootstrap, timeout=PATIENCE_S)


def create(client: RawClient, **settings: Any) -> None:
    client.call(request_payload(requests.create_topics(TOPIC, partitions=60, **settings), 2))


def send(
    client: RawClient, batches: list[bytes], *, acks: int = 1, partition: int = 0, correlation_id: int = 1
) -> None:
    request = produce_of(TOPIC, batches, acks=acks, first_partition=partition)
    client.send(request_payload(request, PRODUCE_VERSION, correlation_id=correlation_id))


def answer_of(client: RawClient) -> list[tuple[ErrorCode, int]]:
    """The error and the base offset of each partition."""
    response = decode(ProduceResponse, PRODUCE_VERSION, client.receive(), 4)
    return [
        (ErrorCode(each.error_code), each.base_offset)
        for topic in response.responses
        for each in topic.partition_responses
    ]


def produce(client: RawClient, batches: list[bytes]) -> list[tuple[ErrorCode, int]]:
    send(client, batches)
    return answer_of(client)


def offset_at(client: RawClient, timestamp: int, partition: int = 0, version: int = 1) -> int:
    answer = client.call(request_payload(requests.list_offsets(TOPIC, partition, timestamp=timestamp), version))
    header_bytes = 4 + response_header_version(ApiKey.LIST_OFFSETS, version)
    offset: int = decode(ListOffsetsResponse, version, answer, header_bytes).topics[0].partitions[0].offset
    return offset


def end_offset(client: RawClient, partition: int = 0) -> int:
    return offset_at(client, LATEST, partition)


def small_batch(count: int = 1, **options: Any) -> bytes:
    return build_batch([Record(offset, 0, b"k", b"v") for offset in range(count)], **options)


@pytest.mark.parametrize("codec", BOMBS)
def test_batches_that_inflate_to_a_multiple_block_no_client(codec: Compression) -> None:
    """Their budget allows for two of them."""
    limits = {
        "odradek.max.decompressed.batch.bytes": str(LARGEST),
        "odradek.max.decompressed.request.bytes": str(2 * LARGEST),
    }
    bombs = [bomb(codec, LARGEST - MEBIBYTE)] * 4
    with BrokerThread(SETTINGS | limits) as broker, client_of(broker) as client:
        create(client)
        with longest_turn(broker) as turn:
            answer = produce(client, bombs)
    assert [error for error, _ in answer] == [ErrorCode.NONE] * 2 + [ErrorCode.MESSAGE_TOO_LARGE] * 2
    assert turn.are_short()


def test_sixty_batches_that_inflate_beyond_the_limit_block_no_client(broker: BrokerThread) -> None:
    bombs = [bomb(Compression.ZSTD, 129 * MEBIBYTE)] * 60
    with client_of(broker) as client, longest_turn(broker) as turn:
        answer = produce(client, bombs)
    assert [error for error, _ in answer] == [ErrorCode.MESSAGE_TOO_LARGE] * 60
    assert turn.are_short()


def test_many_small_batches_are_spread_over_turns(broker: BrokerThread) -> None:
    """Each batch fits one turn; together they take as long as one large batch."""
    bombs = [bomb(Compression.GZIP, MEBIBYTE)] * 60
    with client_of(broker) as client, longest_turn(broker) as turn:
        answer = produce(client, bombs)
    assert [error for error, _ in answer] == [ErrorCode.NONE] * 60
    assert turn.are_short()


@pytest.mark.parametrize("stored", ["producer", pytest.param("gzip", marks=pytest.mark.long)])
@pytest.mark.parametrize("codec", BOMBS)
def test_only_a_part_of_an_inflated_batch_is_in_memory(tmp_path: Path, codec: Compression, stored: str) -> None:
    """Also while the batch is recompressed. The request's bytes are in the frame, in the batch and on their way."""
    settings = {"message.max.bytes": "104857600", "compression.type": stored}
    batch = bomb(codec, INFLATED)
    decoders = LZ4_DECODERS if codec is Compression.LZ4 else 0
    with spawned_broker(tmp_path, settings) as broker, RawClient(broker.bootstrap, timeout=PATIENCE_S) as client:
        create(client)
        assert produce(client, [bomb(codec, 3 * MEBIBYTE)]) == [(ErrorCode.NONE, 0)]  # what is imported once
        before = resident_bytes(broker)
        forget_peak(broker)
        assert produce(client, [batch, batch]) == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 0)]
        assert peak_bytes(broker) - before < 3 * 2 * len(batch) + PARTS_IN_MEMORY + decoders


def test_records_without_keys_are_named_without_holding_an_inflated_batch(tmp_path: Path) -> None:
    """The search for them inflates the batch a second time."""
    with spawned_broker(tmp_path, SETTINGS) as broker, RawClient(broker.bootstrap, timeout=PATIENCE_S) as client:
        create(client, **{"cleanup.policy": "compact"})
        assert produce(client, [bomb(Compression.ZSTD, 3 * MEBIBYTE)]) == [(ErrorCode.INVALID_RECORD, -1)]
        before = resident_bytes(broker)
        forget_peak(broker)
        assert produce(client, [bomb(Compression.ZSTD, INFLATED)]) == [(ErrorCode.INVALID_RECORD, -1)]
        assert peak_bytes(broker) - before < PARTS_IN_MEMORY


def resident_bytes(broker: SpawnedBroker, name: str = "VmRSS") -> int:
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


def forget_peak(broker: SpawnedBroker) -> None:
    Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")


def peak_bytes(broker: SpawnedBroker) -> int:
    """The most resident memory of its process since `forget_peak`, with what C libraries use."""
    return resident_bytes(broker, "VmHWM")


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("kind", ["records", "headers"])
def test_millions_of_records_or_headers_block_no_client(broker: BrokerThread, codec: Compression, kind: str) -> None:
    count = MILLIONS * (13 if kind == "records" else 40)
    body = TINY_RECORD * count if kind == "records" else record_of_headers(count)
    records = count if kind == "records" else 1
    batch = batch_of(body if codec is Compression.NONE else compressed(codec, [body]), records, codec)
    with client_of(broker) as client, longest_turn(broker) as turn:
        ((error, _),) = produce(client, [batch])
        assert turn.are_short()
        # Compressed batches must number their records.
        refused = kind == "records" and codec is not Compression.NONE
        assert error is (ErrorCode.INVALID_RECORD if refused else ErrorCode.NONE)
        assert end_offset(client) == (0 if refused else records)
    assert turn.are_short()


@cache
def records_of_which_the_last_is_late(count: int) -> bytes:
    return b"".join([record_of_time(0, offset) for offset in range(count - 1)]) + record_of_time(LATE_MS, count - 1)


@pytest.mark.parametrize("codec", Compression)
def test_a_search_by_time_among_very_many_records_blocks_no_client(broker: BrokerThread, codec: Compression) -> None:
    """Only the last record is as late as the requested time."""
    count = 100_000
    body = records_of_which_the_last_is_late(count)
    batch = batch_of(body if codec is Compression.NONE else compressed(codec, [body]), count, codec)
    with client_of(broker) as client:
        assert produce(client, [batch]) == [(ErrorCode.NONE, 0)]
        with longest_turn(broker) as turn:
            assert offset_at(client, LATE_MS) == count - 1
            assert offset_at(client, LARGEST_TIMESTAMP, version=7) == count - 1
            assert offset_at(client, LATE_MS + 1) == -1
    assert turn.are_short()


def test_a_search_by_time_holds_only_a_piece_of_a_batch_in_memory(broker: BrokerThread) -> None:
    count = 300_000
    batch = batch_of(TINY_RECORD * count + record_of_time(LATE_MS, count), count + 1)
    with client_of(broker) as client:
        assert produce(client, [batch]) == [(ErrorCode.NONE, 0)]
        del batch
        tracemalloc.start()
        try:
            assert offset_at(client, LATE_MS) == count
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < MEBIBYTE


def test_a_batch_of_fifty_megabytes_blocks_no_client(broker: BrokerThread) -> None:
    batch = batch_of(b"".join(zeros_record(50 * MEBIBYTE)))
    with client_of(broker) as client, longest_turn(broker) as turn:
        assert produce(client, [batch]) == [(ErrorCode.NONE, 0)]
        assert produce(client, [batch]) == [(ErrorCode.NONE, 1)]
    assert turn.are_short()


def test_renumbered_and_recompressed_records_block_no_client() -> None:
    with BrokerThread(SETTINGS) as broker, client_of(broker) as client:
        create(client, **{"compression.type": "zstd"})
        batch = batch_of(TINY_RECORD * RENUMBERED, RENUMBERED)
        with longest_turn(broker) as turn:
            assert produce(client, [batch]) == [(ErrorCode.NONE, 0)]
        assert turn.are_short()
        assert end_offset(client) == RENUMBERED


def test_requests_after_a_large_batch_are_appended_and_answered_after_it(broker: BrokerThread) -> None:
    """An idempotent producer has several batches in flight; the broker must append them in order."""
    large = batch_of(compressed(Compression.ZSTD, zeros_record(20 * MEBIBYTE)), 1, Compression.ZSTD, 7, 0, 0)
    with client_of(broker) as client:
        send(client, [large])
        for sequence in range(1, 4):
            send(client, [small_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)])
        assert [answer_of(client) for _ in range(4)] == [[(ErrorCode.NONE, offset)] for offset in range(4)]


def test_a_large_batch_with_acks_0_is_appended_before_later_batches(broker: BrokerThread) -> None:
    with client_of(broker) as client:
        send(client, [bomb(Compression.ZSTD, 20 * MEBIBYTE)], acks=0)
        assert end_offset(client) == 1


def test_a_refused_large_batch_with_acks_0_ends_the_connection(broker: BrokerThread) -> None:
    with client_of(broker) as client:
        send(client, [bomb(Compression.ZSTD, 129 * MEBIBYTE)], acks=0)
        assert not client.is_alive()


def test_a_client_that_sends_with_acks_0_and_disconnects_loses_nothing(broker: BrokerThread) -> None:
    with client_of(broker) as client:
        send(client, [bomb(Compression.ZSTD, 20 * MEBIBYTE)] * 3, acks=0)
    deadline = time.monotonic() + 60
    with client_of(broker) as client:
        while [end_offset(client, partition) for partition in range(3)] != [1, 1, 1]:
            assert time.monotonic() < deadline


def test_small_and_large_batches_of_several_clients_are_all_in_the_log_once(broker: BrokerThread) -> None:
    large = batch_of(b"".join(zeros_record(12 * MEBIBYTE)))

    def append(batch: bytes, times: int) -> list[int]:
        with client_of(broker) as client:
            return [produce(client, [batch])[0][1] for _ in range(times)]

    with ThreadPoolExecutor(4) as threads:
        ends = [threads.submit(append, large, 4), threads.submit(append, large, 4)]
        ends += [threads.submit(append, small_batch(), 200) for _ in range(2)]
        offsets = [offset for end in ends for offset in end.result()]
    assert sorted(offsets) == list(range(408))
    with client_of(broker) as client:
        assert end_offset(client) == 408


def test_a_topic_deleted_during_a_large_batch_leaves_no_request_unanswered(broker: BrokerThread) -> None:
    with client_of(broker) as client, client_of(broker) as administrator:
        send(client, [bomb(Compression.ZSTD, 100 * MEBIBYTE), batch_of(b"".join(zeros_record(20 * MEBIBYTE)))] * 2)
        administrator.call(request_payload(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 1))
        errors = {error for error, _ in answer_of(client)}
        assert errors <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        create(administrator)
        assert produce(client, [small_batch()]) == [(ErrorCode.NONE, 0)]


def test_a_broker_that_stops_during_a_large_batch_stores_all_or_none_of_it(tmp_path: Path) -> None:
    batch = batch_of(b"".join(zeros_record(30 * MEBIBYTE)))
    with BrokerThread(SETTINGS, data_dir=tmp_path) as broker, client_of(broker) as client:
        create(client)
        assert produce(client, [small_batch(3)]) == [(ErrorCode.NONE, 0)]
        send(client, [bomb(Compression.ZSTD, 100 * MEBIBYTE), batch, batch])
        send(client, [batch])
        broker.stop()
    with BrokerThread(SETTINGS, data_dir=tmp_path) as broker, client_of(broker) as client:
        end = end_offset(client)
        assert end in {3, 4, 5}
        assert produce(client, [small_batch()]) == [(ErrorCode.NONE, end)]

"""Produce, Fetch, ListOffsets and related requests over real sockets to a whole broker."""

from __future__ import annotations

import contextlib
import itertools
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.server import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.producers import DescribeProducersRequest
from odradek.protocol.records import Record, build_batch, iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from tests.broker.replica.harness import UnsyncedFiles, later
from tests.patience import until
from tests.wire.raw_client import RawClient, connected, raw_client
from tests.wire.requests import create_topics, fetch, produce

MB = 1 << 20
T0 = TopicPartition("t", 0)
PATIENCE_S = 60
"""The longest wait for a required response."""


@contextlib.asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[RawClient]:
    async with raw_client(broker.endpoints[0].port, limit=1 << 24) as client:
        yield client


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with in_process_broker() as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with client_of(broker) as client:
        yield client


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[RawClient]:
    async with client_of(broker) as client:
        yield client


async def create(client: RawClient, name: str = "t", partitions: int = 1, **configs: Any) -> None:
    response = await client.call(create_topics(name, partitions=partitions, **configs), 5)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE]


def batch(count: int = 1, size: int = 10, **options: Any) -> bytes:
    now = time.time_ns() // 1_000_000
    return build_batch([Record(n, now, b"k", b"v" * size, []) for n in range(count)], **options)


def only(response: Any) -> Any:
    """Returns the only partition of a Produce or Fetch response."""
    (topic,) = response.responses
    (partition,) = getattr(topic, "partition_responses", None) or topic.partitions
    return partition


def hold_high_watermark(broker: Broker) -> None:
    """Adds a replica without records, on another live broker, to the ISR."""
    broker.metadata.put_broker(BrokerInfo(1, {}))
    partition = broker.replica_manager.partitions.find(T0)
    partition.make_leader(later(partition, 0, (0, 1), (0, 1), epochs=0))


class TestProduce:
    async def test_acks_all_waits_while_the_high_watermark_is_held_back(
        self, broker: Broker, client: RawClient, other: RawClient
    ) -> None:
        await create(other)
        purgatory = broker.replica_manager.produce_purgatory
        assert only(await client.call(produce("t", batch(2), acks=-1), 9)).base_offset == 0
        assert (purgatory.watched, purgatory.delayed) == (0, 0)

        hold_high_watermark(broker)
        client.send_request(produce("t", batch(3), acks=-1), 9)
        client.send_request(fetch((T0, 0)), 11)
        await until(lambda: purgatory.delayed == 1)
        assert purgatory.watched == 1
        assert await client.is_silent()
        (waiting,) = purgatory.waiting()
        assert waiting.keys == (T0,)

        await other.call(fetch((T0, 4), replica_id=1), 11)
        assert await client.is_silent()
        await other.call(fetch((T0, 5), replica_id=1), 11)
        answer = only(await client.response())
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
        assert only(await client.response()).error_code == ErrorCode.NONE
        assert (purgatory.watched, purgatory.delayed, purgatory.completed) == (0, 0, 1)

    async def test_acks_1_does_not_wait_for_the_high_watermark(self, broker: Broker, client: RawClient) -> None:
        await create(client)
        hold_high_watermark(broker)
        assert only(await client.call(produce("t", batch(), acks=1), 9)).base_offset == 0
        assert only(await client.call(fetch((T0, 0)), 11)).records == b""

    async def test_an_append_that_is_not_replicated_in_time_times_out(self, broker: Broker, client: RawClient) -> None:
        await create(client)
        hold_high_watermark(broker)
        answer = only(await client.call(produce("t", batch(), acks=-1, timeout_ms=50), 9))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert broker.replica_manager.produce_purgatory.expired == 1

    async def test_a_client_that_disconnects_leaves_no_waiting_operation(
        self, broker: Broker, client: RawClient
    ) -> None:
        await create(client)
        hold_high_watermark(broker)
        async with client_of(broker) as gone:
            gone.send_request(produce("t", batch(), acks=-1), 9)
            gone.send_request(fetch((T0, 0), max_wait_ms=60_000), 11)
            await until(lambda: broker.replica_manager.fetch_purgatory.delayed == 1)
            assert broker.replica_manager.produce_purgatory.delayed == 1
        await until(lambda: broker.timer.size == 0)
        assert broker.replica_manager.produce_purgatory.delayed == 0
        assert broker.replica_manager.fetch_purgatory.delayed == 0

    async def test_every_produce_version_appends_a_batch(self, client: RawClient) -> None:
        await create(client)
        for version in range(10):
            await client.call(produce("t", batch(4), acks=1), version)
            answer = only(await client.call(produce("t", batch(4), acks=-1), version))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 8 * version + 4)

    @pytest.mark.parametrize("magic", [0, 1])
    async def test_old_message_formats_are_refused(self, client: RawClient, magic: int) -> None:
        await create(client)
        message = struct.pack(">iBB", 0, magic, 0) + (struct.pack(">q", 0) if magic else b"")
        message += struct.pack(">ii", -1, 50) + bytes(50)
        records = struct.pack(">qi", 0, len(message)) + message
        for version in range(10):
            error = ErrorCode.UNSUPPORTED_VERSION if version < 3 else ErrorCode.INVALID_RECORD
            assert only(await client.call(produce("t", records, acks=1), version)).error_code == error
        assert only(await client.call(produce("t", batch(), acks=1), 9)).base_offset == 0

    async def test_a_produce_with_acks_0_gets_no_response(self, broker: Broker, client: RawClient) -> None:
        await create(client)
        client.send_request(produce("t", batch(3), acks=0), 9)
        assert only(await client.call(fetch((T0, 0)), 11)).high_watermark == 3

    async def test_a_failure_with_acks_0_closes_the_connection(self, client: RawClient) -> None:
        client.send_request(produce("nowhere", batch(), acks=0), 9)
        assert await client.frame() is None

    async def test_a_transactional_batch_needs_a_transactional_id(self, client: RawClient) -> None:
        await create(client)
        records = batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        answer = only(await client.call(produce("t", records, acks=1), 9))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)
        client.send_request(produce("t", records, acks=0), 9)
        assert await client.frame() is None

    @pytest.mark.parametrize(("version", "error"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
    async def test_zstd_needs_produce_version_7(self, client: RawClient, version: int, error: int) -> None:
        await create(client)
        assert only(await client.call(produce("t", batch(compression=4), acks=1), version)).error_code == error

    async def test_invalid_records_are_named_from_version_8_on(self, client: RawClient) -> None:
        await create(client, cleanup_policy="compact")
        now = time.time_ns() // 1_000_000
        records = build_batch([Record(n, now, key, b"v", []) for n, key in enumerate([b"a", None, b"b", None])])
        answer = only(await client.call(produce("t", records, acks=1), 8))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, 3]
        assert answer.error_message
        assert answer.log_start_offset == 0
        assert only(await client.call(produce("t", records, acks=1), 7)).error_code == ErrorCode.INVALID_RECORD

    async def test_log_append_time_is_returned(self, client: RawClient) -> None:
        await create(client, message_timestamp_type="LogAppendTime")
        before = time.time_ns() // 1_000_000
        answer = only(await client.call(produce("t", batch(), acks=1), 9))
        assert before <= answer.log_append_time_ms <= time.time_ns() // 1_000_000

    async def test_a_duplicate_returns_its_original_offset(self, client: RawClient) -> None:
        await create(client)
        records = batch(3, producer_id=9, producer_epoch=0, base_sequence=0)
        await client.call(produce("t", batch(2), acks=1), 9)
        offsets = [only(await client.call(produce("t", records, acks=-1), 9)).base_offset for _ in range(2)]
        assert offsets == [2, 2]
        gap = batch(1, producer_id=9, producer_epoch=0, base_sequence=7)
        assert (
            only(await client.call(produce("t", gap, acks=1), 9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )

    async def test_a_partition_named_twice_is_refused_and_nothing_is_written(self, client: RawClient) -> None:
        await create(client)
        request = produce("t", batch(), acks=1)
        request.topic_data[0].partition_data *= 2
        assert only(await client.call(request, 9)).error_code == ErrorCode.INVALID_REQUEST
        assert only(await client.call(fetch((T0, 0)), 11)).high_watermark == 0

    @pytest.mark.parametrize("acks", [2, -3])
    async def test_acks_other_than_minus_1_0_and_1_are_refused(self, client: RawClient, acks: int) -> None:
        await create(client)
        assert (
            only(await client.call(produce("t", batch(), acks=acks), 9)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        )

    async def test_an_append_that_must_be_flushed_is_acknowledged_after_the_flush(
        self, broker: Broker, client: RawClient
    ) -> None:
        await create(client, flush_messages="1")
        log = broker.replica_manager.partitions.find(T0).log
        for acks in (1, -1, 1):
            answer = only(await client.call(produce("t", batch(), acks=acks), 9))
            assert answer.error_code == ErrorCode.NONE
            assert log.state.recovery_point > answer.base_offset
        assert broker.replica_manager.flusher.flushes == 3


class TestFetch:
    async def test_versions_for_older_formats_are_refused_and_the_connection_stays(self, client: RawClient) -> None:
        await create(client)
        await client.call(produce("t", batch(), acks=1), 9)
        for version in range(4):
            answer = only(await client.call(fetch((T0, 0)), version))
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert not answer.records
        assert only(await client.call(fetch((T0, 0)), 4)).records

    async def test_every_other_fetch_version_returns_records(self, client: RawClient) -> None:
        await create(client)
        await client.call(produce("t", batch(3), acks=1), 9)
        for version in range(4, 13):
            answer = only(await client.call(fetch((T0, 1)), version))
            ((_, header),) = iter_batches(answer.records)
            assert (header.base_offset, header.record_count, answer.high_watermark) == (0, 3, 3)
            assert answer.last_stable_offset == 3
            assert answer.log_start_offset == (0 if version >= 5 else -1)

    async def test_only_read_committed_fetches_return_aborted_transactions(self, client: RawClient) -> None:
        await create(client)
        await client.call(produce("t", batch(3), acks=1), 9)
        for offset in (0, 3):
            assert only(await client.call(fetch((T0, offset), isolation_level=1), 11)).aborted_transactions == []
            assert only(await client.call(fetch((T0, offset), isolation_level=0), 11)).aborted_transactions is None

    async def test_a_fetch_waits_for_another_connection_s_records(
        self, broker: Broker, client: RawClient, other: RawClient
    ) -> None:
        await create(other)
        client.send_request(fetch((T0, 0), max_wait_ms=60_000, min_bytes=400), 11)
        await other.call(produce("t", batch(size=100), acks=1), 9)
        await until(lambda: broker.replica_manager.fetch_purgatory.delayed == 1)
        assert await client.is_silent()
        await other.call(produce("t", batch(size=300), acks=1), 9)
        assert len(list(iter_batches(only(await client.response()).records))) == 2

    async def test_a_fetch_is_answered_at_its_timeout(self, client: RawClient) -> None:
        await create(client)
        answer = only(await client.call(fetch((T0, 0), max_wait_ms=30), 11))
        assert (answer.error_code, answer.records) == (ErrorCode.NONE, b"")

    async def test_the_brokers_own_limit_bounds_a_fetch(self) -> None:
        async with in_process_broker(fetch_max_bytes=1024) as broker, client_of(broker) as client:
            await create(client, partitions=3)
            for partition in range(3):
                await client.call(produce("t", batch(size=800), partition=partition, acks=1), 9)
            answer = await client.call(fetch(*((TopicPartition("t", n), 0) for n in range(3))), 11)
            sizes = [len(topic.partitions[0].records) for topic in _split(answer)]
            assert sizes[0] > 800
            assert sizes[1:] == [0, 0], "not even one batch fits into the rest"

    async def test_a_stopping_broker_answers_waiting_fetches(self) -> None:
        async with in_process_broker() as broker:
            client = await connected(broker.endpoints[0].port)
            await create(client)
            client.send_request(fetch((T0, 0), max_wait_ms=60_000), 11)
            assert await client.is_silent()
        assert only(await client.response()).error_code == ErrorCode.NONE
        await client.close()


def _split(answer: Any) -> list[Any]:
    """Returns one topic entry per partition."""
    return [
        type(topic)(topic=topic.topic, partitions=[partition])
        for topic in answer.responses
        for partition in topic.partitions
    ]


class TestFetchSessions:
    async def test_a_response_for_a_thousand_unchanged_partitions_has_a_few_dozen_bytes(self) -> None:
        async with in_process_broker(files=UnsyncedFiles()) as broker, client_of(broker) as client:
            await self.count_bytes(broker, client)

    async def count_bytes(self, broker: Broker, client: RawClient) -> None:
        await create(client, partitions=1000)
        full = fetch(*((TopicPartition("t", n), 0) for n in range(1000)), session_epoch=0)
        session = (await client.call(full, 11)).session_id
        assert client.last_size > 24_000
        for epoch, version in enumerate((7, 11, 12), start=1):
            answer = await client.call(fetch(session_id=session, session_epoch=epoch), version)
            assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.NONE, session, [])
            assert client.last_size == (22 if version < 12 else 21)

        client.send_request(fetch(session_id=session, session_epoch=4, max_wait_ms=60_000), 11)
        assert await client.is_silent()
        async with client_of(broker) as other:
            await other.call(produce("t", batch(2), partition=700, acks=1), 9)
        answer = await client.response()
        assert [topic.partitions[0].partition_index for topic in answer.responses] == [700]

    async def test_the_next_fetch_of_a_session_waits_for_the_previous_one(
        self, broker: Broker, client: RawClient, other: RawClient
    ) -> None:
        await create(client)
        session = (await client.call(fetch((T0, 0), session_epoch=0), 11)).session_id
        client.send_request(fetch(session_id=session, session_epoch=1, max_wait_ms=60_000), 11)
        client.send_request(fetch((T0, 1), session_id=session, session_epoch=2), 11)
        assert await client.is_silent()
        await other.call(produce("t", batch(), acks=1), 9)
        assert only(await client.response()).records
        answer = await client.response()
        assert (answer.error_code, answer.responses) == (ErrorCode.NONE, [])

    async def test_session_errors_are_returned_for_the_whole_response(self, client: RawClient) -> None:
        await create(client)
        answer = await client.call(fetch(session_id=77, session_epoch=1), 11)
        assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        session = (await client.call(fetch((T0, 0), session_epoch=0), 11)).session_id
        answer = await client.call(fetch(session_id=session, session_epoch=5), 11)
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    async def test_the_number_of_sessions_is_a_setting(self) -> None:
        settings = {"max.incremental.fetch.session.cache.slots": 1}
        async with in_process_broker(settings) as broker, client_of(broker) as client:
            await create(client)
            ids = [(await client.call(fetch((T0, 0), session_epoch=0), 11)).session_id for _ in range(2)]
            assert ids[0] != 0
            assert ids[1] == 0

    async def test_forgotten_partitions_are_no_longer_returned(self, client: RawClient) -> None:
        await create(client, partitions=2)
        t1 = TopicPartition("t", 1)
        session = (await client.call(fetch((T0, 0), (t1, 0), session_epoch=0), 11)).session_id
        forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
        await client.call(fetch(session_id=session, session_epoch=1, forgotten_topics_data=forgotten), 11)
        await client.call(produce("t", batch(), partition=0, acks=1), 9)
        await client.call(produce("t", batch(), partition=1, acks=1), 9)
        answer = await client.call(fetch(session_id=session, session_epoch=2), 11)
        assert only(answer).partition_index == 1


def list_offsets(timestamp: int, *partitions: int, topic: str = "t", **more: Any) -> ListOffsetsRequest:
    asked = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=timestamp, max_num_offsets=5)
        for n in partitions or (0,)
    ]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked)]
    return ListOffsetsRequest(**{"replica_id": -1, **more}, topics=topics)


class TestOffsets:
    async def test_latest_and_earliest_offsets_are_found_in_every_version(self, client: RawClient) -> None:
        await create(client)
        await client.call(produce("t", batch(5), acks=1), 9)
        for version, (timestamp, offset) in itertools.product(range(8), ((-1, 5), (-2, 0))):
            answer = (await client.call(list_offsets(timestamp), version)).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            if version == 0:
                assert answer.old_style_offsets[0] == offset
            else:
                assert (answer.offset, answer.timestamp) == (offset, -1)
            assert answer.leader_epoch == (0 if version >= 4 else -1)

    async def test_offsets_are_found_by_timestamp(self, client: RawClient) -> None:
        await create(client)
        records = build_batch([Record(n, 1000 * (n + 1), b"k", b"v", []) for n in range(5)])
        await client.call(produce("t", records, acks=1), 9)
        for timestamp, found in ((2500, (3000, 2)), (5001, (-1, -1)), (-3, (5000, 4))):
            answer = (await client.call(list_offsets(timestamp), 7)).topics[0].partitions[0]
            assert (answer.timestamp, answer.offset) == found

    async def test_negative_times_without_a_meaning_are_refused(self, client: RawClient) -> None:
        await create(client)
        for version, timestamp in ((6, -3), (7, -4), (7, -5), (0, -3), (7, -100)):
            answer = (await client.call(list_offsets(timestamp), version)).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    async def test_a_partition_named_twice_and_an_unknown_partition_are_errors(self, client: RawClient) -> None:
        await create(client)
        answers = (await client.call(list_offsets(-1, 0, 0, 7), 5)).topics[0].partitions
        assert [answer.error_code for answer in answers] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    async def test_leader_epochs_are_fenced(self, client: RawClient) -> None:
        await create(client)
        request = list_offsets(-1)
        request.topics[0].partitions[0].current_leader_epoch = 9
        answer = (await client.call(request, 4)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    async def test_the_end_offset_of_a_leader_epoch_is_returned(self, client: RawClient) -> None:
        await create(client)
        await client.call(produce("t", batch(5), acks=1), 9)
        for version in range(5):
            answers = []
            for topic, partition in (("t", 0), ("nowhere", 1)):
                asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=partition, leader_epoch=0)
                topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
                response = await client.call(OffsetForLeaderEpochRequest(topics=topics), version)
                answers.append(response.topics[0].partitions[0])
            assert (answers[0].error_code, answers[0].end_offset) == (ErrorCode.NONE, 5)
            assert answers[0].leader_epoch == (0 if version >= 1 else -1)
            assert (answers[1].error_code, answers[1].end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


class TestDeletingAndDescribing:
    def delete_records(self, offset: int, topic: str = "t", timeout_ms: int = 30_000) -> DeleteRecordsRequest:
        asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])]
        return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    @pytest.mark.parametrize("version", range(3))
    async def test_records_are_deleted(self, client: RawClient, version: int) -> None:
        await create(client)
        await client.call(produce("t", batch(5), acks=1), 9)
        answer = (await client.call(self.delete_records(3), version)).topics[0].partitions[0]
        assert (answer.low_watermark, answer.error_code) == (3, ErrorCode.NONE)
        assert only(await client.call(fetch((T0, 2)), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = (await client.call(self.delete_records(-1), version)).topics[0].partitions[0]
        assert answer.low_watermark == 5
        answer = (await client.call(self.delete_records(6), version)).topics[0].partitions[0]
        assert (answer.low_watermark, answer.error_code) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        answer = (await client.call(self.delete_records(0, "nowhere"), version)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_deleting_records_waits_for_the_followers(
        self, broker: Broker, client: RawClient, other: RawClient
    ) -> None:
        await create(client)
        await client.call(produce("t", batch(5), acks=1), 9)
        hold_high_watermark(broker)
        client.send_request(self.delete_records(3), 2)
        await until(lambda: broker.replica_manager.delete_records_purgatory.delayed == 1)
        assert await client.is_silent()
        request = fetch((T0, 5), replica_id=1)
        request.topics[0].partitions[0].log_start_offset = 3
        await other.call(request, 11)
        answer = (await client.response()).topics[0].partitions[0]
        assert (answer.low_watermark, answer.error_code) == (3, ErrorCode.NONE)

    async def test_producers_are_described(self, client: RawClient) -> None:
        await create(client)
        await client.call(produce("t", batch(3, producer_id=9, producer_epoch=1, base_sequence=0), acks=1), 9)
        topics = [
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
            for name in ("t", "nowhere", "not/a/name")
        ]
        answers = (await client.call(DescribeProducersRequest(topics=topics), 0)).topics
        (producer,) = answers[0].partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 1, 2)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
        assert answers[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answers[2].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    async def test_log_directories_are_described(self, broker: Broker, client: RawClient) -> None:
        await create(client)
        records = batch(5)
        await client.call(produce("t", records, acks=1), 9)
        (directory,) = (await client.call(DescribeLogDirsRequest(topics=None), 2)).results
        assert directory.log_dir == broker.config.log_dirs[0]
        (topic,) = directory.topics
        assert (topic.name, topic.partitions[0].partition_size) == ("t", len(records))

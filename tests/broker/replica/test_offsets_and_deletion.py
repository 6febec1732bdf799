"""ListOffsets, DeleteRecords, DescribeLogDirs, DescribeProducers and retention in the replica manager."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.broker.replica.partition.partition_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOT_FOUND,
    offsets_before,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.retention import SEGMENTS_PER_STEP
from tests.broker.replica.harness import T0, ReplicaHarness

HIGH_WATERMARK = -1
T1 = TopicPartition("t", 1)


class TestOffsetsByTime:
    @pytest.fixture
    def start_ms(self, harness: ReplicaHarness) -> int:
        """Appends three batches of ten records, a second apart, and returns the first timestamp."""
        harness.lead(epoch=4)
        start = harness.clock.wall_ms()
        for _ in range(3):
            harness.produce(harness.batch(10))
            harness.clock.advance(1000)
        return int(start)

    def test_a_time_finds_the_first_record_at_or_after_it(self, harness: ReplicaHarness, start_ms: int) -> None:
        look = harness.look
        assert look(T0, start_ms) == (start_ms, 0, 4)
        assert look(T0, start_ms + 1) == (start_ms + 1000, 10, 4)
        assert look(T0, start_ms + 2000) == (start_ms + 2000, 20, 4)

    def test_a_time_after_all_records_finds_nothing(self, harness: ReplicaHarness, start_ms: int) -> None:
        assert harness.look(T0, start_ms + 2001) == NOT_FOUND == (-1, -1, -1)

    def test_latest_earliest_and_max_timestamp_are_found(self, harness: ReplicaHarness, start_ms: int) -> None:
        look = harness.look
        harness.manager.deletions.delete(0, {T0: 3}, lambda _: None)
        assert look(T0, LATEST, isolation_level=0)[:2] == (-1, 30)
        assert look(T0, LATEST, isolation_level=0).leader_epoch == 4
        assert look(T0, EARLIEST) == look(T0, EARLIEST_LOCAL) == (-1, 3, 4)
        assert look(T0, LATEST_TIERED) == look(T0, LATEST_TIERED, isolation_level=0) == NOT_FOUND
        found = look(T0, MAX_TIMESTAMP, isolation_level=0)
        assert found.timestamp == start_ms + 2000
        assert 20 <= found.offset < 30

    def test_a_consumer_finds_no_offset_beyond_the_high_watermark(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        now = harness.clock.wall_ms()
        harness.produce(harness.batch(10))
        partition.update_follower(1, 4, 0)
        harness.clock.advance(1000)
        harness.produce(harness.batch(10))
        look = harness.look
        assert look(T0, LATEST, isolation_level=0).offset == 4
        assert look(T0, LATEST).offset == 20
        assert look(T0, now + 1, isolation_level=0) == NOT_FOUND
        assert look(T0, now + 1).offset == 10

    def test_after_an_election_a_lagging_high_watermark_is_not_returned(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1), epoch=1)
        harness.produce(harness.batch(10))
        partition.update_follower(1, 4, 0)
        harness.lead(replicas=(0, 1), epoch=2)
        look = harness.look
        with pytest.raises(ProtocolError) as raised:
            look(T0, LATEST, isolation_level=0)
        assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert look(T0, LATEST).offset == 10
        partition.update_follower(1, 10, 0)
        assert look(T0, LATEST, isolation_level=0).offset == 10

    def test_version_0_returns_the_base_offsets_of_segments(self, harness: ReplicaHarness, start_ms: int) -> None:
        partition = harness.manager.partitions.find(T0)
        partition.log.roll()
        harness.produce(harness.batch(5))
        partition.log.roll()
        later = partition.log.segments[0].file.modified_ms() + 3_600_000
        assert offsets_before(partition, LATEST, 10, later, from_consumer=True) == [35, 30, 0]
        assert offsets_before(partition, LATEST, 1, later, from_consumer=True) == [35]
        assert offsets_before(partition, EARLIEST, 10, later, from_consumer=True) == [0]
        assert offsets_before(partition, 0, 10, later, from_consumer=True) == []
        harness.produce(harness.batch(5))
        assert offsets_before(partition, LATEST, 2, later, from_consumer=True) == [40, 35]
        assert offsets_before(partition, later, 1, later, from_consumer=True) == [40]
        assert offsets_before(partition, later - 1, 1, later, from_consumer=True) == [35]

    def test_version_0_returns_the_high_watermark_to_a_consumer_instead_of_the_log_end(
        self, harness: ReplicaHarness
    ) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(10))
        partition.update_follower(1, 4, 0)
        now = harness.clock.wall_ms()
        assert offsets_before(partition, LATEST, 10, now, from_consumer=True) == [4, 0]
        assert offsets_before(partition, LATEST, 10, now, from_consumer=False) == [10, 0]


class TestDeletion:
    def delete(
        self, harness: ReplicaHarness, before: int, *, timeout_ms: int = 1000, key: TopicPartition = T0
    ) -> list[Any]:
        """Returns the results so far: at most one."""
        answers: list[Any] = []
        outcome = harness.manager.deletions.delete(timeout_ms, {key: before}, answers.append)
        if isinstance(outcome, dict):
            answers.append(outcome)
        harness.turn()
        return answers

    def test_all_records_before_an_offset_are_deleted(self, harness: ReplicaHarness) -> None:
        partition = harness.lead()
        harness.produce(harness.batch(10))
        ((low_watermark, error),) = self.delete(harness, 4)[0].values()
        assert (low_watermark, error) == (4, ErrorCode.NONE)
        assert partition.log.state.log_start_offset == 4

    def test_minus_1_means_the_high_watermark(self, harness: ReplicaHarness) -> None:
        partition = harness.lead()
        harness.produce(harness.batch(10))
        assert self.delete(harness, HIGH_WATERMARK)[0][T0].low_watermark == 10
        assert partition.log.state.log_start_offset == 10

    def test_an_already_deleted_offset_changes_nothing(self, harness: ReplicaHarness) -> None:
        harness.lead()
        harness.produce(harness.batch(10))
        self.delete(harness, 5)
        assert self.delete(harness, 2)[0][T0] == (5, ErrorCode.NONE)

    @pytest.mark.parametrize("before", [11, -2])
    def test_an_offset_out_of_range_is_refused(self, harness: ReplicaHarness, before: int) -> None:
        partition = harness.lead()
        harness.produce(harness.batch(10))
        assert self.delete(harness, before)[0][T0] == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert partition.log.state.log_start_offset == 0

    def test_a_topic_that_is_only_compacted_keeps_its_records(self, harness: ReplicaHarness) -> None:
        harness.lead(cleanup_policy="compact")
        assert self.delete(harness, 0)[0][T0] == (-1, ErrorCode.POLICY_VIOLATION)

    def test_internal_topics_keep_their_records(self, harness: ReplicaHarness) -> None:
        key = TopicPartition("__consumer_offsets", 0)
        harness.lead(key)
        assert self.delete(harness, 0, key=key)[0][key] == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)

    def test_deleting_records_of_an_unknown_partition_is_refused(self, harness: ReplicaHarness) -> None:
        assert self.delete(harness, 0)[0][T0] == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def test_deleting_records_waits_for_the_followers(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(10))
        harness.fetch(FetchTarget(T0, 10, 1000, log_start_offset=0), replica_id=1)
        answers = self.delete(harness, 4)
        assert answers == []
        assert partition.log.state.log_start_offset == 4
        harness.fetch(FetchTarget(T0, 10, 1000, log_start_offset=4), replica_id=1)
        assert answers == [{T0: (4, ErrorCode.NONE)}]

    def test_deleting_records_times_out(self, harness: ReplicaHarness) -> None:
        harness.lead(replicas=(0, 1))
        harness.produce(harness.batch(10))
        harness.fetch(FetchTarget(T0, 10, 1000, log_start_offset=0), replica_id=1)
        answers = self.delete(harness, 4, timeout_ms=300)
        harness.advance(300)
        assert answers == [{T0: (-1, ErrorCode.REQUEST_TIMED_OUT)}]
        assert harness.manager.deletions.expirations.total == 1


def test_retention_sends_fetch_sessions_the_new_log_start(harness: ReplicaHarness) -> None:
    partition = harness.lead(retention_ms=60_000, segment_bytes=1000)
    for _ in range(3):
        harness.produce(harness.batch_of_bytes(900))
    harness.fetch(FetchTarget(T0, 3, 1000), session=(0, 0))
    (session,) = [s for s in [harness.sessions.get(i) for i in harness.sessions._sessions] if s is not None]
    harness.clock.advance(60_001)
    assert list(harness.manager.retention_steps()) == [3]
    fetched = harness.fetch(session=(session.id, 1))
    assert fetched.data.log_start_offset == partition.log.state.log_start_offset == 3
    assert harness.fetch(session=(session.id, 2)).partitions == {}


def test_fetch_sessions_hear_of_a_log_start_that_moved_before_a_segment_could_not_be_deleted(
    harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = harness.lead(retention_ms=60_000, segment_bytes=1000)
    for _ in range(3):
        harness.produce(harness.batch_of_bytes(900))
    session_id = harness.fetch(FetchTarget(T0, 3, 1000), session=(0, 0)).response.session_id

    def fail(*_: object) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(type(partition.log.files), "rename", fail)
    harness.clock.advance(60_001)
    assert list(harness.manager.retention_steps()) == [0]
    assert harness.fetch(session=(session_id, 1)).data.log_start_offset == partition.log.state.log_start_offset == 3


def test_retention_runs_in_bounded_steps_and_skips_logs_deleted_meanwhile(harness: ReplicaHarness) -> None:
    going, staying = harness.lead(retention_ms=60_000, segment_bytes=100), harness.lead(T1, retention_ms=60_000)
    for _ in range(100):
        harness.produce(harness.batch_of_bytes(100))
    harness.produce(key=T1)
    harness.clock.advance(60_001)
    steps = harness.manager.retention_steps()
    assert next(steps) == SEGMENTS_PER_STEP
    assert going.log.state.log_start_offset == SEGMENTS_PER_STEP
    harness.manager.stop_replica(T0, delete=True)
    assert list(steps) == [1]
    assert going.log.state.log_start_offset == SEGMENTS_PER_STEP
    assert staying.log.state.log_start_offset == 1


def test_log_directories_are_described_with_the_size_of_each_log(harness: ReplicaHarness) -> None:
    other = TopicPartition("u", 0)
    harness.lead()
    harness.lead(other)
    harness.produce(harness.batch_of_bytes(1000))
    (directory,) = finished(harness.manager.log_dirs.describe())
    assert directory.path == harness.logs.directories[0]
    assert directory.error is ErrorCode.NONE
    assert 0 < directory.usable_bytes <= directory.total_bytes
    assert [(replica.topic_partition, replica.size) for replica in directory.replicas] == [(T0, 1000), (other, 0)]
    (directory,) = finished(harness.manager.log_dirs.describe({other}))
    assert [replica.topic_partition for replica in directory.replicas] == [other]
    (directory,) = finished(harness.manager.log_dirs.describe(set()))
    assert directory.replicas == []


def test_producers_are_described_by_their_last_batch(harness: ReplicaHarness) -> None:
    harness.lead()
    harness.produce(harness.batch(3, producer_id=7, producer_epoch=2, base_sequence=0))
    harness.produce(harness.batch(1))
    (producer,) = harness.manager.partitions.find(T0).log.producers.state.producers.values()
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 2)


def test_new_settings_take_effect_on_the_open_log(harness: ReplicaHarness) -> None:
    harness.lead()
    harness.manager.update_log_config(
        "t", type(harness.manager.partitions.find(T0).log.config)({"max.message.bytes": 100})
    )
    assert harness.produce(harness.batch_of_bytes(200)).result.error is ErrorCode.MESSAGE_TOO_LARGE

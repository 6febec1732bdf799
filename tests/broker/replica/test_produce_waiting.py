"""Appends through the replica manager, and the replication and flushes that they wait for."""

from __future__ import annotations

import errno
import os
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import T0, ReplicaHarness, later
from tests.storage.small_logs import truncate

LAG_MS = 30_000


def follow(harness: ReplicaHarness, replica_id: int, offset: int) -> None:
    """Sends a fetch of a follower whose log ends at `offset`."""
    harness.fetch(FetchTarget(T0, offset, 1 << 20, log_start_offset=0), replica_id=replica_id)


def test_a_produce_waits_until_both_followers_have_it(harness: ReplicaHarness) -> None:
    """The followers' logs end at 950 and 960, the append at 1001."""
    partition = harness.lead(replicas=(0, 1, 2))
    harness.produce(harness.batch(1000))
    follow(harness, 1, 950)
    follow(harness, 2, 960)
    produced = harness.produce(harness.batch(1), acks=-1, timeout_ms=30_000)
    assert not produced.is_answered
    assert partition.log.state.high_watermark == 950
    assert harness.manager.produce_purgatory.watched == 1
    assert harness.manager.produce_purgatory.delayed == 1

    follow(harness, 1, 1001)
    assert partition.log.state.high_watermark == 960
    assert not produced.is_answered

    harness.advance(29_999)
    assert not produced.is_answered
    follow(harness, 2, 1001)
    assert produced.result.error is ErrorCode.NONE
    assert produced.result.base_offset == 1000
    assert harness.manager.produce_purgatory.delayed == 0
    assert harness.manager.produce_purgatory.watched == 0


def test_a_produce_that_is_not_replicated_in_time_times_out(harness: ReplicaHarness) -> None:
    harness.lead(replicas=(0, 1))
    produced = harness.produce(acks=-1, timeout_ms=500)
    harness.advance(499)
    assert not produced.is_answered
    harness.advance(1)
    assert produced.result.error is ErrorCode.REQUEST_TIMED_OUT
    assert harness.manager.produce_purgatory.expired == 1
    assert harness.timer.size == 0


def test_acks_all_without_followers_completes_at_once(harness: ReplicaHarness) -> None:
    harness.lead()
    produced = harness.produce(harness.batch(2), acks=-1)
    assert produced.pending is None
    assert (produced.result.base_offset, produced.result.last_offset) == (0, 1)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_acks_other_than_minus_1_0_and_1_are_refused(harness: ReplicaHarness, acks: int) -> None:
    partition = harness.lead()
    assert harness.produce(acks=acks).result.error is ErrorCode.INVALID_REQUIRED_ACKS
    assert partition.log.state.log_end_offset == 0


def test_a_stopped_partition_completes_waiting_appends(harness: ReplicaHarness) -> None:
    harness.lead(replicas=(0, 1))
    produced = harness.produce(acks=-1)
    harness.manager.stop_replica(T0, delete=True)
    harness.known.clear()
    harness.turn()
    assert produced.result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_each_partition_has_its_own_result(harness: ReplicaHarness) -> None:
    harness.lead()
    elsewhere = TopicPartition("nowhere", 3)
    results = harness.produce_each({T0: harness.batch(), elsewhere: harness.batch()}).results
    assert results[T0].error is ErrorCode.NONE
    assert results[elsewhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nowhere" not in harness.manager.topic_stats.by_topic


def test_with_acks_all_a_failed_partition_does_not_wait_but_the_others_do(harness: ReplicaHarness) -> None:
    harness.lead(replicas=(0, 1))
    elsewhere = TopicPartition("nowhere", 3)
    produced = harness.produce_each({T0: harness.batch(), elsewhere: harness.batch()}, acks=-1)
    assert not produced.is_answered
    follow(harness, 1, 1)
    results = produced.results
    assert results[T0].error is ErrorCode.NONE
    assert results[elsewhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_internal_topics_refuse_appends_of_ordinary_clients(harness: ReplicaHarness) -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    harness.lead(internal)
    assert harness.produce(key=internal).result.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert harness.produce(key=internal, client_id="__admin_client").result.error is ErrorCode.NONE


def test_a_duplicate_batch_returns_its_original_offset_and_counts_once(harness: ReplicaHarness) -> None:
    harness.lead()
    batch = harness.batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
    harness.produce(harness.batch(5))
    first = harness.produce(batch).result
    again = harness.produce(batch).result
    assert (first.base_offset, again.base_offset) == (5, 5)
    assert again.error is ErrorCode.NONE
    assert harness.manager.topic_stats.of("t").messages_in == 8


def test_a_duplicate_batch_that_moves_the_high_watermark_completes_what_waits_for_it(harness: ReplicaHarness) -> None:
    """Broker 2 is about to join the in-sync replicas, and is refused. When it lags for too long, the high watermark no
    longer waits for it: the next append moves it.
    """
    partition = harness.lead(replicas=(0, 1, 2), isr=(0, 1))
    follow(harness, 2, 0)
    assert partition.isr.proposal is not None
    partition.isr_answered(partition.isr.proposal, ErrorCode.INELIGIBLE_REPLICA)
    batch = harness.batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
    first = harness.produce(batch, acks=-1, timeout_ms=90_000)
    fetched = harness.fetch(FetchTarget(T0, 0, 1000), max_wait_ms=90_000, min_bytes=1)
    follow(harness, 1, 3)
    assert partition.log.state.high_watermark == 0

    harness.clock.advance(LAG_MS + 1)
    again = harness.produce(batch, acks=-1)
    assert partition.log.state.high_watermark == 3
    harness.turn()
    assert (first.result.base_offset, again.result.base_offset) == (0, 0)
    assert fetched.data.records


def test_a_refused_batch_names_its_records_and_the_log_start(harness: ReplicaHarness) -> None:
    harness.lead(cleanup_policy="compact")
    records = harness.batch(2).replace(b"\x02k", b"\x01\x02")  # the checksum no longer matches
    assert harness.produce(records).result.error is ErrorCode.CORRUPT_MESSAGE
    assert harness.produce(records).result.log_start_offset == -1


def test_shutdown_answers_waiting_appends(harness: ReplicaHarness) -> None:
    harness.lead(replicas=(0, 1))
    produced = harness.produce(acks=-1)
    fetched = harness.fetch(FetchTarget(T0, 0, 1000), max_wait_ms=10_000, min_bytes=1)
    harness.manager.shutdown()
    assert produced.result.error is ErrorCode.REQUEST_TIMED_OUT
    assert fetched.data.error_code == ErrorCode.NONE


class TestFlushing:
    """flush.messages and flush.ms."""

    def test_an_append_is_acknowledged_after_its_flush(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(flush_messages=1)
        produced = harness.produce(harness.batch(2), acks=1)
        assert not produced.is_answered
        assert partition.log.state.high_watermark == 0
        harness.threads.run()
        harness.turn()
        assert produced.result.base_offset == 0
        assert partition.log.state.recovery_point == partition.log.state.high_watermark == 2

    def test_acks_all_waits_for_the_flush_too(self, harness: ReplicaHarness) -> None:
        harness.lead(flush_messages=1)
        produced = harness.produce(acks=-1)
        assert not produced.is_answered
        harness.threads.run()
        harness.turn()
        assert produced.result.error is ErrorCode.NONE

    def test_acks_0_waits_for_nothing(self, harness: ReplicaHarness) -> None:
        harness.lead(flush_messages=1)
        assert harness.produce(acks=0).is_answered
        harness.threads.run()

    def test_one_flush_covers_all_appends_made_during_the_previous_one(self, harness: ReplicaHarness) -> None:
        harness.lead(flush_messages=1)
        first = harness.produce()
        others = [harness.produce() for _ in range(20)]
        assert len(harness.threads.waiting) == 1
        harness.threads.run_one()
        harness.turn()
        assert first.is_answered
        assert not any(other.is_answered for other in others)
        harness.threads.run()
        harness.turn()
        assert all(other.is_answered for other in others)
        assert harness.manager.flusher.flushes == 2

    def test_only_the_append_that_reaches_flush_messages_waits(self, harness: ReplicaHarness) -> None:
        harness.lead(flush_messages=3)
        assert harness.produce().is_answered
        assert harness.produce().is_answered
        third = harness.produce()
        assert not third.is_answered
        assert harness.produce().is_answered  # the running flush does not cover it, and no other is requested
        harness.threads.run()
        harness.turn()
        assert third.answers == 1
        assert harness.manager.flusher.flushes == 1

    def test_a_duplicate_waits_for_the_flush_of_the_first(self, harness: ReplicaHarness) -> None:
        harness.lead(flush_messages=1)
        batch = harness.batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
        harness.produce(batch)
        again = harness.produce(batch)
        assert not again.is_answered
        harness.threads.run()
        harness.turn()
        assert again.result.base_offset == 0

    def test_a_failed_flush_is_a_storage_error_for_waiting_and_later_appends(
        self, harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partition = harness.lead(flush_messages=1)
        waiting = [harness.produce(acks=1), harness.produce(acks=-1)]

        def fail(_: Any) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("odradek.storage.files.OsFile.sync", fail)
        harness.threads.run()
        harness.turn()
        assert [produced.result.error for produced in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert harness.produce(acks=1).result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log.state.recovery_point == 0
        harness.threads.run()

    async def test_a_flush_that_the_policy_requires_can_be_awaited(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(flush_messages=2)
        harness.produce()
        assert harness.manager.flusher.until_flushed(partition) is None
        harness.produce(acks=0)
        ends = [harness.manager.flusher.until_flushed(partition) for _ in range(2)]
        harness.produce(harness.batch(2), acks=0)
        harness.threads.run_one()
        assert [end is not None and end.done() for end in ends] == [False, False]
        harness.threads.run()
        assert [end is not None and end.done() for end in ends] == [True, True]
        assert partition.log.state.recovery_point == 4
        assert not partition.needs_flush
        assert harness.manager.flusher.until_flushed(partition) is None

    async def test_the_wait_for_a_flush_ends_when_it_fails(
        self, harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partition = harness.lead(flush_messages=1)
        harness.produce(acks=0)
        end = harness.manager.flusher.until_flushed(partition)
        assert end is not None
        monkeypatch.setattr("odradek.storage.files.OsFile.sync", disk_error(errno.EIO))
        harness.threads.run()
        assert end.done()
        assert partition.has_failed
        assert harness.manager.flusher.until_flushed(partition) is None

    def test_a_partition_that_starts_again_flushes_first_what_its_log_has(self, harness: ReplicaHarness) -> None:
        harness.lead(flush_messages=1)
        produced = harness.produce()
        assert not produced.is_answered
        harness.manager.stop_replica(T0)
        harness.turn()
        assert produced.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = harness.lead(flush_messages=1, epoch=1)
        assert (partition.needs_flush, partition.log.state.high_watermark) == (True, 0)
        harness.threads.run()
        assert (partition.needs_flush, partition.log.state.high_watermark) == (False, 1)

    def test_a_log_that_was_truncated_below_a_required_flush_needs_none(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(flush_messages=2)
        harness.produce(harness.batch(2), acks=0)
        partition.make_follower(later(partition, 1, (0, 1)))
        truncate(partition.log, 0)
        assert not partition.needs_flush
        partition.make_leader(later(partition, 0, (0,), (0,)))
        assert harness.produce(acks=0).is_answered
        assert partition.log.state.high_watermark == 1
        harness.threads.run()

    def test_flush_ms_flushes_an_append_although_nothing_waits_for_it(self, harness: ReplicaHarness) -> None:
        partition = harness.lead(flush_ms=200)
        assert harness.produce().is_answered
        harness.produce()
        harness.advance(199)
        harness.threads.run()
        assert partition.log.state.recovery_point == 0
        harness.advance(1)
        harness.threads.run()
        assert partition.log.state.recovery_point == 2
        assert harness.manager.flusher.flushes == 1

    def test_by_default_nothing_is_flushed(self, harness: ReplicaHarness) -> None:
        harness.lead()
        harness.produce()
        assert harness.threads.waiting == []
        assert harness.timer.size == 0


def disk_error(number: int) -> Any:
    """Returns a function that fails like a disk."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


class TestFailedLogs:
    """A leader whose log cannot be written, while other replicas exist, gives up the partition."""

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_a_failed_write_takes_the_partition_offline_and_is_reported_once(
        self, harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        failed = harness.lead(replicas=(0, 1), epoch=3)
        monkeypatch.setattr("odradek.storage.files.OsFile.write", disk_error(number))
        for _ in range(2):
            assert harness.produce().result.error is ErrorCode.KAFKA_STORAGE_ERROR
        error = OSError(number, os.strerror(number))
        harness.manager.log_failed(failed, error)  # as a flush that was under way reports
        assert harness.lost == [(T0, 3)]
        assert harness.manager.partitions.offline[T0].is_full is (number == errno.ENOSPC)

    def test_the_failed_log_of_a_deleted_partition_does_not_end_a_new_one_of_its_name(
        self, harness: ReplicaHarness
    ) -> None:
        deleted = harness.lead(replicas=(0, 1))
        harness.manager.stop_replica(T0, delete=True)
        harness.lead(replicas=(0, 1), topic_id=UUID(int=2))
        harness.manager.log_failed(deleted, OSError(errno.EIO, "the disk"))
        assert harness.lost == []
        assert harness.produce().result.error is ErrorCode.NONE

    def test_a_failed_flush_is_reported(self, harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        harness.lead(replicas=(0, 1), flush_messages=1)
        produced = harness.produce(acks=-1)
        monkeypatch.setattr("odradek.storage.files.OsFile.sync", disk_error(errno.EIO))
        harness.threads.run()
        harness.turn()
        assert produced.result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.lost == [(T0, 0)]

    def test_the_only_replica_stays_the_leader(self, harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        harness.lead()
        monkeypatch.setattr("odradek.storage.files.OsFile.write", disk_error(errno.ENOSPC))
        assert harness.produce().result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.lost == []

    def test_a_refused_batch_is_no_failure_of_the_log(self, harness: ReplicaHarness) -> None:
        harness.lead(replicas=(0, 1))
        assert harness.produce(b"nonsense").result.error is not ErrorCode.NONE
        assert harness.lost == []

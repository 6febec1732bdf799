"""Appends through the replica manager, and the replication and flushes that they wait for."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.replica.fetch_session import FetchTarget
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.rooms import T0, Room


def follow(room: Room, replica_id: int, offset: int) -> None:
    """Sends a fetch of a follower whose log ends at `offset`."""
    room.fetch(FetchTarget(T0, offset, 1 << 20, log_start_offset=0), replica_id=replica_id)


def test_a_produce_waits_until_both_followers_have_it(room: Room) -> None:
    """The followers' logs end at 950 and 960, the append at 1001."""
    partition = room.lead(replicas=(0, 1, 2))
    room.produce(room.batch(1000))
    follow(room, 1, 950)
    follow(room, 2, 960)
    produced = room.produce(room.batch(1), acks=-1, timeout_ms=30_000)
    assert not produced.is_answered
    assert partition.log.high_watermark == 950
    assert room.manager.produce_purgatory.watched == 1
    assert room.manager.produce_purgatory.delayed == 1

    follow(room, 1, 1001)
    assert partition.log.high_watermark == 960
    assert not produced.is_answered

    room.advance(29_999)
    assert not produced.is_answered
    follow(room, 2, 1001)
    assert produced.result.error is ErrorCode.NONE
    assert produced.result.base_offset == 1000
    assert room.manager.produce_purgatory.delayed == 0
    assert room.manager.produce_purgatory.watched == 0


def test_a_produce_that_is_not_replicated_in_time_times_out(room: Room) -> None:
    room.lead(replicas=(0, 1))
    produced = room.produce(acks=-1, timeout_ms=500)
    room.advance(499)
    assert not produced.is_answered
    room.advance(1)
    assert produced.result.error is ErrorCode.REQUEST_TIMED_OUT
    assert room.manager.produce_purgatory.expired == 1
    assert room.timer.size == 0


def test_acks_all_without_followers_completes_at_once(room: Room) -> None:
    room.lead()
    produced = room.produce(room.batch(2), acks=-1)
    assert produced.operation is None
    assert (produced.result.base_offset, produced.result.last_offset) == (0, 1)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_acks_other_than_minus_1_0_and_1_are_refused(room: Room, acks: int) -> None:
    partition = room.lead()
    assert room.produce(acks=acks).result.error is ErrorCode.INVALID_REQUIRED_ACKS
    assert partition.log.log_end_offset == 0


def test_a_stopped_partition_completes_waiting_appends(room: Room) -> None:
    room.lead(replicas=(0, 1))
    produced = room.produce(acks=-1)
    room.manager.stop_replica(T0, delete=True)
    room.known.clear()
    room.turn()
    assert produced.result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_each_partition_has_its_own_result(room: Room) -> None:
    room.lead()
    elsewhere = TopicPartition("nowhere", 3)
    results = room.manager.append_records(0, 1, {T0: room.batch(), elsewhere: room.batch()}, 9, lambda _: None)
    assert isinstance(results, dict)
    assert results[T0].error is ErrorCode.NONE
    assert results[elsewhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nowhere" not in room.manager.topic_stats.by_topic


def test_with_acks_all_a_failed_partition_does_not_wait_but_the_others_do(room: Room) -> None:
    room.lead(replicas=(0, 1))
    elsewhere = TopicPartition("nowhere", 3)
    answers: list[Any] = []
    room.manager.append_records(900, -1, {T0: room.batch(), elsewhere: room.batch()}, 9, answers.append)
    room.turn()
    assert answers == []
    follow(room, 1, 1)
    (results,) = answers
    assert results[T0].error is ErrorCode.NONE
    assert results[elsewhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_internal_topics_refuse_appends_of_ordinary_clients(room: Room) -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    room.lead(internal)
    assert room.produce(key=internal).result.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    allowed = room.manager.append_records(
        0, 1, {internal: room.batch()}, 9, lambda _: None, internal_topics_allowed=True
    )
    assert isinstance(allowed, dict)
    assert allowed[internal].error is ErrorCode.NONE


def test_a_duplicate_batch_returns_its_original_offset_and_counts_once(room: Room) -> None:
    room.lead()
    batch = room.batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
    room.produce(room.batch(5))
    first = room.produce(batch).result
    again = room.produce(batch).result
    assert (first.base_offset, again.base_offset) == (5, 5)
    assert again.error is ErrorCode.NONE
    assert room.manager.topic_stats.of("t").messages_in == 8


def test_a_refused_batch_names_its_records_and_the_log_start(room: Room) -> None:
    room.lead(cleanup_policy="compact")
    records = room.batch(2).replace(b"\x02k", b"\x01\x02")  # the checksum no longer matches
    assert room.produce(records).result.error is ErrorCode.CORRUPT_MESSAGE
    assert room.produce(records).result.log_start_offset == -1


def test_shutdown_answers_waiting_appends(room: Room) -> None:
    room.lead(replicas=(0, 1))
    produced = room.produce(acks=-1)
    fetched = room.fetch(FetchTarget(T0, 0, 1000), max_wait_ms=10_000, min_bytes=1)
    room.manager.shutdown()
    assert produced.result.error is ErrorCode.REQUEST_TIMED_OUT
    assert fetched.data.error_code == ErrorCode.NONE


class TestFlushing:
    """flush.messages and flush.ms."""

    def test_an_append_is_acknowledged_after_its_flush(self, room: Room) -> None:
        partition = room.lead(flush_messages=1)
        produced = room.produce(room.batch(2), acks=1)
        assert not produced.is_answered
        assert partition.log.high_watermark == 0
        room.threads.run()
        room.turn()
        assert produced.result.base_offset == 0
        assert partition.log.flushed_offset == partition.log.high_watermark == 2

    def test_acks_all_waits_for_the_flush_too(self, room: Room) -> None:
        room.lead(flush_messages=1)
        produced = room.produce(acks=-1)
        assert not produced.is_answered
        room.threads.run()
        room.turn()
        assert produced.result.error is ErrorCode.NONE

    def test_acks_0_waits_for_nothing(self, room: Room) -> None:
        room.lead(flush_messages=1)
        assert room.produce(acks=0).is_answered
        room.threads.run()

    def test_one_flush_covers_all_appends_made_during_the_previous_one(self, room: Room) -> None:
        room.lead(flush_messages=1)
        first = room.produce()
        others = [room.produce() for _ in range(20)]
        assert len(room.threads.waiting) == 1
        room.threads.run_one()
        room.turn()
        assert first.is_answered
        assert not any(other.is_answered for other in others)
        room.threads.run()
        room.turn()
        assert all(other.is_answered for other in others)
        assert room.manager.flusher.flushes == 2

    def test_only_the_append_that_reaches_flush_messages_waits(self, room: Room) -> None:
        room.lead(flush_messages=3)
        assert room.produce().is_answered
        assert room.produce().is_answered
        third = room.produce()
        assert not third.is_answered
        assert room.produce().is_answered  # the running flush does not cover it, and no other is requested
        room.threads.run()
        room.turn()
        assert third.answers == 1
        assert room.manager.flusher.flushes == 1

    def test_a_duplicate_waits_for_the_flush_of_the_first(self, room: Room) -> None:
        room.lead(flush_messages=1)
        batch = room.batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
        room.produce(batch)
        again = room.produce(batch)
        assert not again.is_answered
        room.threads.run()
        room.turn()
        assert again.result.base_offset == 0

    def test_a_failed_flush_is_a_storage_error_for_waiting_and_later_appends(
        self, room: Room, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partition = room.lead(flush_messages=1)
        waiting = [room.produce(acks=1), room.produce(acks=-1)]

        def fail(_: Any) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("odradek.storage.files.OsFile.sync", fail)
        room.threads.run()
        room.turn()
        assert [produced.result.error for produced in waiting] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert room.produce(acks=1).result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log.flushed_offset == 0
        room.threads.run()

    def test_flush_ms_flushes_an_append_although_nothing_waits_for_it(self, room: Room) -> None:
        partition = room.lead(flush_ms=200)
        assert room.produce().is_answered
        room.produce()
        room.advance(199)
        room.threads.run()
        assert partition.log.flushed_offset == 0
        room.advance(1)
        room.threads.run()
        assert partition.log.flushed_offset == 2
        assert room.manager.flusher.flushes == 1

    def test_by_default_nothing_is_flushed(self, room: Room) -> None:
        room.lead()
        room.produce()
        assert room.threads.waiting == []
        assert room.timer.size == 0

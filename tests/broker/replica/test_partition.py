"""Partition: leadership, the high watermark, fencing, the ISR."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.checkpoint import read_epochs
from tests.broker.replica.rooms import T0, Room


def code_of(call: Any, *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(ProtocolError) as raised:
        call(*arguments, **options)
    return raised.value.code


def test_without_followers_the_high_watermark_is_the_log_end(room: Room) -> None:
    partition = room.lead()
    room.produce(room.batch(3))
    assert partition.log.high_watermark == partition.log.log_end_offset == 3


def test_the_high_watermark_is_the_smallest_end_of_the_isr(room: Room) -> None:
    partition = room.lead(replicas=(0, 1, 2))
    room.produce(room.batch(10))
    assert partition.log.high_watermark == 0
    partition.update_follower(1, 7, 0)
    assert partition.log.high_watermark == 0
    partition.update_follower(2, 4, 0)
    assert partition.log.high_watermark == 4


def test_a_caught_up_follower_outside_the_isr_holds_back_the_high_watermark(room: Room) -> None:
    partition = room.lead(replicas=(0, 1), isr=(0,))
    partition.update_follower(1, 0, 0)
    room.produce(room.batch(10))
    assert partition.log.high_watermark == 0


def test_a_follower_in_the_isr_holds_back_the_high_watermark_whatever_its_lag(room: Room) -> None:
    partition = room.lead(replicas=(0, 1))
    room.clock.advance(30_001)
    room.produce(room.batch(10))
    assert partition.log.high_watermark == 0


def test_a_follower_lagging_beyond_the_limit_does_not_hold_back_the_high_watermark(room: Room) -> None:
    partition = room.lead(replicas=(0, 1), isr=(0,))
    partition.update_follower(1, 0, 0)
    room.clock.advance(30_001)
    room.produce(room.batch(10))
    assert partition.log.high_watermark == 10


def test_the_high_watermark_does_not_move_back(room: Room) -> None:
    partition = room.lead()
    room.produce(room.batch(10))
    partition.make_leader(1, (0, 1), (0, 1))
    partition.update_follower(1, 4, 0)
    assert partition.log.high_watermark == 10


def test_acks_all_needs_the_minimum_of_in_sync_replicas(room: Room) -> None:
    room.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    assert room.produce(acks=-1).result.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert room.produce(acks=1).result.error is ErrorCode.NONE


def test_the_high_watermark_does_not_advance_below_the_minimum_isr(room: Room) -> None:
    partition = room.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    room.produce(acks=1)
    assert partition.log.high_watermark == 0


def test_the_minimum_isr_is_capped_at_the_number_of_replicas(room: Room) -> None:
    partition = room.lead(min_insync_replicas=2)
    assert room.produce(acks=-1).result.error is ErrorCode.NONE
    assert partition.log.high_watermark == 1


def test_an_isr_that_shrinks_after_the_append_is_reported(room: Room) -> None:
    partition = room.lead(replicas=(0, 1), isr=(0, 1), min_insync_replicas=2)
    produced = room.produce(acks=-1)
    partition.update_follower(1, 1, 0)
    room.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    room.turn()
    assert produced.result.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_an_older_leader_epoch_is_fenced_and_a_newer_one_unknown(room: Room) -> None:
    partition = room.lead(epoch=5)
    assert code_of(partition.local_log, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(partition.local_log, 6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.local_log(5) is partition.log
    assert partition.local_log(-1) is partition.log


def test_a_follower_refuses_clients(room: Room) -> None:
    partition = room.lead()
    partition.make_follower(1, 1, (0, 1))
    assert code_of(partition.local_log) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.local_log(require_leader=False) is partition.log
    assert room.produce().result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_that_is_not_a_replica_is_refused_as_follower(room: Room) -> None:
    partition = room.lead(replicas=(0, 1))
    assert code_of(partition.follower, 7, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(partition.follower, 7, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_leader_epoch_starts_where_the_log_ends(room: Room) -> None:
    partition = room.lead(epoch=1)
    room.produce(room.batch(4))
    room.lead(epoch=3)
    room.produce(room.batch(2))
    assert partition.end_offset_for_epoch(-1, 1) == (1, 4)
    assert partition.end_offset_for_epoch(-1, 2) == (1, 4)
    assert partition.end_offset_for_epoch(3, 3) == (3, 6)
    assert partition.end_offset_for_epoch(3, 4) == (-1, -1)


def test_a_missing_partition_raises_the_reason(room: Room) -> None:
    partition = room.lead()
    room.manager.stop_replica(partition.topic_partition)
    assert code_of(room.manager.partition, partition.topic_partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    room.known.clear()
    assert code_of(room.manager.partition, partition.topic_partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_whose_log_cannot_be_opened_is_offline(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no such device")

    with monkeypatch.context() as patch:
        patch.setattr(room.logs, "get_or_create", fail)
        with pytest.raises(OSError, match="no such device"):
            room.lead()
    assert code_of(room.manager.partition, T0) is ErrorCode.KAFKA_STORAGE_ERROR
    room.lead()
    assert room.manager.partition(T0).is_leader


def test_a_partition_whose_epoch_cannot_be_written_is_offline(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.lead(epoch=1)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(room.logs.files, "replace_file", fail)
        with pytest.raises(ProtocolError):
            room.lead(epoch=2)
    assert code_of(room.manager.partition, T0) is ErrorCode.KAFKA_STORAGE_ERROR
    room.lead(epoch=2)
    assert room.produce().result.error is ErrorCode.NONE


def test_a_partition_whose_epoch_cannot_be_written_to_a_full_disk_is_led_and_read(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.lead(epoch=1)
    assert room.produce().result.error is ErrorCode.NONE

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(room.logs.files, "replace_file", fail)
        partition = room.lead(epoch=2)
    assert partition.is_leader
    assert partition.log.read(0, 1000).records
    assert partition.end_offset_for_epoch(2, 2) == (2, 1)
    partition.log.close()
    assert read_epochs(room.logs.files, partition.log.leader_epochs.path) == [(1, 0), (2, 1)]

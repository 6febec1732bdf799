"""Partition: leadership, the high watermark, fencing, the ISR."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import read_epochs
from tests.broker.replica.harness import T0, ReplicaHarness, later


def code_of(call: Any, *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(ProtocolError) as raised:
        call(*arguments, **options)
    return raised.value.code


def test_without_followers_the_high_watermark_is_the_log_end(harness: ReplicaHarness) -> None:
    partition = harness.lead()
    harness.produce(harness.batch(3))
    assert partition.log.state.high_watermark == partition.log.state.log_end_offset == 3


def test_the_high_watermark_is_the_smallest_end_of_the_isr(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1, 2))
    harness.produce(harness.batch(10))
    assert partition.log.state.high_watermark == 0
    partition.update_follower(1, 7, 0)
    assert partition.log.state.high_watermark == 0
    partition.update_follower(2, 4, 0)
    assert partition.log.state.high_watermark == 4


def refuse_to_join(partition: Partition) -> None:
    """Broker 1 has caught up, and the controller refuses to add it to the ISR."""
    partition.update_follower(1, 0, 0)
    assert partition.isr.proposal is not None
    partition.isr_answered(partition.isr.proposal, ErrorCode.INELIGIBLE_REPLICA)


def test_a_caught_up_follower_outside_the_isr_holds_back_the_high_watermark(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1), isr=(0,))
    refuse_to_join(partition)
    harness.produce(harness.batch(10))
    assert partition.log.state.high_watermark == 0


def test_a_caught_up_follower_that_has_left_the_cluster_does_not_hold_back_the_high_watermark(
    harness: ReplicaHarness,
) -> None:
    partition = harness.lead(replicas=(0, 1), isr=(0,))
    refuse_to_join(partition)
    harness.dead.add(1)
    harness.produce(harness.batch(10))
    assert partition.log.state.high_watermark == 10


def test_a_follower_in_the_isr_holds_back_the_high_watermark_whatever_its_lag(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1))
    harness.clock.advance(30_001)
    harness.produce(harness.batch(10))
    assert partition.log.state.high_watermark == 0


def test_a_follower_lagging_beyond_the_limit_does_not_hold_back_the_high_watermark(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1), isr=(0,))
    refuse_to_join(partition)
    harness.clock.advance(30_001)
    harness.produce(harness.batch(10))
    assert partition.log.state.high_watermark == 10


def test_the_high_watermark_does_not_move_back(harness: ReplicaHarness) -> None:
    partition = harness.lead()
    harness.produce(harness.batch(10))
    partition.make_leader(later(partition, 0, (0, 1), (0, 1)))
    partition.update_follower(1, 4, 0)
    assert partition.log.state.high_watermark == 10


def test_acks_all_needs_the_minimum_of_in_sync_replicas(harness: ReplicaHarness) -> None:
    harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    assert harness.produce(acks=-1).result.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.produce(acks=1).result.error is ErrorCode.NONE


def test_the_high_watermark_does_not_advance_below_the_minimum_isr(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    harness.produce(acks=1)
    assert partition.log.state.high_watermark == 0


def test_the_minimum_isr_is_capped_at_the_number_of_replicas(harness: ReplicaHarness) -> None:
    partition = harness.lead(min_insync_replicas=2)
    assert harness.produce(acks=-1).result.error is ErrorCode.NONE
    assert partition.log.state.high_watermark == 1


def test_an_isr_that_shrinks_after_the_append_is_reported(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1), isr=(0, 1), min_insync_replicas=2)
    produced = harness.produce(acks=-1)
    partition.update_follower(1, 1, 0)
    harness.lead(replicas=(0, 1), isr=(0,), min_insync_replicas=2)
    harness.turn()
    assert produced.result.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_an_older_leader_epoch_is_fenced_and_a_newer_one_unknown(harness: ReplicaHarness) -> None:
    partition = harness.lead(epoch=5)
    assert code_of(partition.local_log, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(partition.local_log, 6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.local_log(5) is partition.log
    assert partition.local_log(-1) is partition.log


def test_a_follower_refuses_clients(harness: ReplicaHarness) -> None:
    partition = harness.lead()
    partition.make_follower(later(partition, 1, (0, 1)))
    assert code_of(partition.local_log) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.local_log(require_leader=False) is partition.log
    assert harness.produce().result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_that_is_not_a_replica_is_refused_as_follower(harness: ReplicaHarness) -> None:
    partition = harness.lead(replicas=(0, 1))
    assert code_of(partition.follower, 7, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(partition.follower, 7, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_leader_epoch_starts_where_the_log_ends(harness: ReplicaHarness) -> None:
    partition = harness.lead(epoch=1)
    harness.produce(harness.batch(4))
    harness.lead(epoch=3)
    harness.produce(harness.batch(2))
    assert partition.end_offset_for_epoch(-1, 1) == (1, 4)
    assert partition.end_offset_for_epoch(-1, 2) == (1, 4)
    assert partition.end_offset_for_epoch(3, 3) == (3, 6)
    assert partition.end_offset_for_epoch(3, 4) == (-1, -1)


def test_a_missing_partition_raises_the_reason(harness: ReplicaHarness) -> None:
    partition = harness.lead()
    harness.manager.stop_replica(partition.topic_partition)
    assert code_of(harness.manager.partitions.find, partition.topic_partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    harness.known.clear()
    assert code_of(harness.manager.partitions.find, partition.topic_partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_partition_whose_log_cannot_be_created_is_offline(
    harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Any) -> dict[TopicPartition, ProtocolError]:
        return {T0: ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, "no such device")}

    with monkeypatch.context() as patch:
        patch.setattr(harness.manager._creations, "make", fail)
        assert list(await harness.manager.make_logs([])) == [T0]
    assert code_of(harness.manager.partitions.find, T0) is ErrorCode.KAFKA_STORAGE_ERROR
    harness.lead()
    assert harness.manager.partitions.find(T0).is_leader


@pytest.mark.parametrize("reason", [OSError(5, "Input/output error"), OSError(28, "No space left on device")])
def test_a_partition_whose_epoch_cannot_be_written_is_led_and_read(
    harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch, reason: OSError
) -> None:
    harness.lead(epoch=1)
    assert harness.produce().result.error is ErrorCode.NONE

    def fail(*_: Any, **__: Any) -> None:
        raise reason

    with monkeypatch.context() as patch:
        patch.setattr(harness.logs.files, "replace_file", fail)
        partition = harness.lead(epoch=2)
    assert partition.is_leader
    assert partition.log.reader.read(0, 1000).records
    assert partition.end_offset_for_epoch(2, 2) == (2, 1)
    partition.log.close()
    assert read_epochs(harness.logs.files, partition.log.leader_epochs.path) == [(1, 0), (2, 1)]

"""A partition of an internal topic that moves between two brokers: what each of them does with its shard."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.coordinator.runtime.loading import RECORDS_PER_SLICE
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Decision
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import Record, build_batch
from odradek.storage.log_config import LogConfig
from tests.broker.coordinator.runtime.harness import PARTITION, Outcome, RuntimeHarness
from tests.broker.replica.harness import later
from tests.storage.small_logs import bytes_of, truncate

BOTH = (0, 1)
"""The replicas. To each of the two brokers, it is itself 0 and the other one 1."""
RECORDS = 3 * RECORDS_PER_SLICE


class Broker(RuntimeHarness):
    """One of the two brokers."""

    @property
    def partition(self) -> Partition:
        return self.manager.partitions.find(PARTITION)

    def follow(self, epoch: int) -> None:
        """Becomes a follower, or a replica of a partition without a leader."""
        known = self.manager.partitions.get(PARTITION)
        if known is None:
            self.lead(replicas=BOTH, epoch=0)
        state = later(self.partition, 1, BOTH, BOTH)._replace(leader_epoch=epoch)
        self.manager.become_follower(PARTITION, uuid.UUID(int=1), state, LogConfig({"cleanup.policy": "compact"}))
        self.turn()

    def lead_again(self, epoch: int, isr: tuple[int, ...] = BOTH, **settings: Any) -> None:
        self.lead(replicas=BOTH, isr=isr, epoch=epoch, **settings)
        self.turn()

    def replicate_to(self, other: Broker) -> None:
        """The other broker fetches everything, then the high watermark."""
        log, theirs = self.partition.log, other.partition
        start = theirs.log.state.log_end_offset
        if start < log.state.log_end_offset:
            theirs.append_as_follower(bytes_of(log.reader.read(start, 1 << 20)))
        if self.partition.update_follower(1, theirs.log.state.log_end_offset, 0):
            self.manager.wakeups.watermark_moved(self.partition)
        self.turn()
        theirs.follow(log.state.high_watermark, log.state.log_start_offset)

    def refusal(self) -> ErrorCode | None:
        try:
            self.runtime.shard_for("g")
        except ProtocolError as error:
            return error.code
        return None


@contextmanager
def running(root: Path, **settings: Any) -> Iterator[Broker]:
    broker = Broker(root, **settings)
    broker.runtime.start()
    try:
        yield broker
    finally:
        broker.tasks.close()
        broker.logs.close()


@contextmanager
def pair_of(root: Path, **settings: Any) -> Iterator[tuple[Broker, Broker]]:
    """Yields the leader and the follower, in epoch 1."""
    with running(root / "first", **settings) as first, running(root / "second", **settings) as second:
        second.follow(epoch=1)
        first.lead_again(epoch=1)
        yield first, second


Pair = tuple[Broker, Broker]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with pair_of(tmp_path) as pair:
        yield pair


@pytest.fixture
def careful(tmp_path: Path) -> Iterator[Pair]:
    """A pair that loads what is replicated, as `__transaction_state` is loaded."""
    with pair_of(tmp_path, loads_replicated=True, loads_each_epoch=True, append_timeout_ms=1000) as pair:
        yield pair


def test_a_leader_that_becomes_a_follower_is_no_longer_the_coordinator(pair: Pair) -> None:
    first, _ = pair
    assert first.refusal() is None
    first.follow(epoch=2)
    assert first.shard.events == ["loaded", "unloaded"]
    assert first.refusal() is ErrorCode.NOT_COORDINATOR
    first.follow(epoch=3)
    assert first.shard.events == ["loaded", "unloaded"]


def test_a_follower_that_becomes_leader_loads_what_it_has_followed(pair: Pair) -> None:
    first, second = pair
    outcome = first.write((b"a", b"1"), (b"b", b"2"))
    assert outcome.results == []
    first.replicate_to(second)
    assert outcome.is_done
    first.follow(epoch=2)
    assert second.refusal() is ErrorCode.NOT_COORDINATOR
    second.lead_again(epoch=2)
    assert second.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    second.tasks.run()
    assert second.refusal() is None
    assert (second.shard.leader_epoch, second.shard.values) == (2, {b"a": b"1", b"b": b"2"})


def test_decisions_that_wait_for_replication_are_not_coordinator_when_the_leader_changes(pair: Pair) -> None:
    first, second = pair
    outcomes = [first.write((b"a", b"%d" % number)) for number in range(3)]
    first.follow(epoch=2)
    assert [each.error.code for each in outcomes] == [ErrorCode.NOT_COORDINATOR] * 3
    second.lead_again(epoch=2)
    second.tasks.run()
    assert second.shard.values == {}


def test_decisions_that_wait_are_done_although_the_leader_has_another_epoch(pair: Pair) -> None:
    """The shard goes on."""
    first, second = pair
    outcome = first.write((b"a", b"1"))
    first.lead_again(epoch=2)
    assert (first.shard.events, outcome.results) == (["loaded"], [])
    first.replicate_to(second)
    assert outcome.is_done
    assert first.shard.values == {b"a": b"1"}


def test_decisions_that_wait_are_done_although_the_shard_is_loaded_again_in_another_epoch(tmp_path: Path) -> None:
    with pair_of(tmp_path, loads_each_epoch=True) as (first, second):
        outcome = first.write((b"a", b"1"))
        first.lead_again(epoch=2)
        old, new = first.made[-2:]
        assert (old.events, outcome.results) == (["loaded", "unloaded"], [])
        first.tasks.run()
        assert new.values == {b"a": b"1"}
        first.replicate_to(second)
        assert outcome.is_done


def test_a_decision_of_an_earlier_term_changes_nothing_in_the_next_one(pair: Pair) -> None:
    first, _ = pair
    shard = first.shard
    first.follow(epoch=2)
    first.lead_again(epoch=3)
    outcome = Outcome()
    shard.act(Decision([CoordinatorRecord(b"late", b"1")], outcome))
    assert outcome.error.code is ErrorCode.NOT_COORDINATOR
    assert first.partition.log.state.log_end_offset == 0


def many_records(first: Broker, second: Broker) -> None:
    """Replicates more records than one slice of the loader has."""
    first.write(*((b"%d" % number, b"1") for number in range(RECORDS)))
    first.replicate_to(second)


def test_a_partition_that_is_lost_while_it_loads_is_never_loaded(pair: Pair) -> None:
    first, second = pair
    many_records(first, second)
    second.lead_again(epoch=2)
    second.tasks.turn()
    assert len(second.shard.values) == RECORDS_PER_SLICE
    second.follow(epoch=3)
    second.tasks.run()
    assert second.shard.events == ["unloaded"]
    assert len(second.shard.values) == RECORDS_PER_SLICE


def test_a_partition_that_is_lost_and_won_while_it_loads_is_loaded_from_its_new_log(pair: Pair) -> None:
    first, second = pair
    many_records(first, second)
    second.lead_again(epoch=2)
    second.tasks.turn()
    second.follow(epoch=3)
    truncate(second.partition.log, 0)
    second.partition.append_as_follower(build_batch([Record(0, 0, b"new", b"1")]))
    second.lead_again(epoch=4)
    second.tasks.run()
    lost, won = second.made[-2:]
    assert lost.events == ["unloaded"]
    assert (won.leader_epoch, won.events, won.values) == (4, ["loaded"], {b"new": b"1"})


def test_the_loss_of_a_log_that_is_being_loaded_is_no_error(pair: Pair) -> None:
    first, second = pair
    many_records(first, second)
    with capture_logs() as lines:
        second.lead_again(epoch=2)
        second.tasks.turn()
        second.manager.stop_replica(PARTITION, delete=True)
        second.tasks.run()
    assert second.shard.events == ["unloaded"]
    assert [line for line in lines if line["log_level"] == "error"] == []


def test_groups_are_loaded_before_their_last_records_are_replicated(pair: Pair) -> None:
    first, second = pair
    first.write((b"a", b"1"))
    second.partition.append_as_follower(bytes_of(first.partition.log.reader.read(0, 1 << 20)))
    second.lead_again(epoch=2)
    second.tasks.run()
    assert second.partition.log.state.high_watermark == 0
    assert (second.refusal(), second.shard.values) == (None, {b"a": b"1"})


# What is loaded must be replicated


def unreplicated(first: Broker, second: Broker) -> None:
    """The second broker becomes the leader; its last record may be unknown to the first one."""
    first.write((b"a", b"1"))
    second.partition.append_as_follower(bytes_of(first.partition.log.reader.read(0, 1 << 20)))
    second.lead_again(epoch=2)
    second.tasks.run()


def test_transactions_are_loaded_when_their_last_records_are_replicated(careful: Pair) -> None:
    first, second = careful
    unreplicated(first, second)
    assert second.shard.values == {b"a": b"1"}
    assert (second.refusal(), second.runtime.loading) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True)
    first.follow(epoch=2)
    second.replicate_to(first)
    assert (second.refusal(), second.runtime.loading, second.shard.events) == (None, False, ["loaded"])


def test_transactions_wait_for_replication_without_a_time_limit(careful: Pair) -> None:
    first, second = careful
    unreplicated(first, second)
    for _ in range(5):
        second.advance(1001)
    assert second.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    first.follow(epoch=2)
    second.replicate_to(first)
    assert second.shard.events == ["loaded"]


def test_transactions_of_an_empty_or_replicated_log_need_not_wait(careful: Pair) -> None:
    first, second = careful
    assert first.shard.events == ["loaded"]
    first.write((b"a", b"1"))
    first.replicate_to(second)
    second.lead_again(epoch=2)
    second.tasks.run()
    assert (second.refusal(), second.shard.values) == (None, {b"a": b"1"})


def test_transactions_are_loaded_although_too_few_replicas_are_in_sync_for_writes(careful: Pair) -> None:
    first, second = careful
    first.write((b"a", b"1"))
    first.replicate_to(second)
    second.lead_again(epoch=2, isr=(0,), min_insync_replicas=2)
    second.partition.log.update_config(LogConfig({"min.insync.replicas": "2"}))
    second.tasks.run()
    assert second.refusal() is None
    assert second.write((b"b", b"2")).error.cause is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_partition_that_is_lost_before_its_records_are_replicated_is_never_loaded(careful: Pair) -> None:
    first, second = careful
    unreplicated(first, second)
    second.follow(epoch=3)
    second.advance(5000)
    assert second.shard.events == ["unloaded"]
    assert second.refusal() is ErrorCode.NOT_COORDINATOR


def test_a_new_epoch_while_records_are_not_replicated_loads_once(careful: Pair) -> None:
    first, second = careful
    unreplicated(first, second)
    second.lead_again(epoch=3)
    second.tasks.run()
    first.follow(epoch=3)
    second.replicate_to(first)
    old, new = second.made[-2:]
    assert (old.events, new.events) == (["unloaded"], ["loaded"])


def test_a_stopping_broker_does_not_wait_for_replication(careful: Pair) -> None:
    first, second = careful
    unreplicated(first, second)
    second.runtime.stop()
    second.manager.shutdown()
    second.turn()
    assert second.shard.events == ["unloaded"]

"""What the records of internal topics add up to, and how long a transaction is open."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.coordinator.group.offsets.records import CommittedOffset, key_prefix, offset_key, offset_value
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.transaction.records import tombstone, transaction_record
from odradek.broker.coordinator.transaction.transaction import Transit
from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.protocol.batch_contents import build_end_transaction_marker
from odradek.protocol.batch_header import read_batch_header
from odradek.protocol.control_records import ControlType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.group.harness import GroupHarness
from tests.simulation import coordinator_logs
from tests.simulation.coordinator_differences import (
    _nearest,
    different_groups,
    different_offsets,
    different_open_commits,
    different_transactions,
    groups_astray,
)
from tests.simulation.coordinator_ledgers import (
    Content,
    GroupLedger,
    Key,
    LoggedGroup,
    LoggedTransaction,
    TransactionLedger,
    Written,
)
from tests.simulation.coordinator_logs import CoordinatorLogs
from tests.simulation.history import History
from tests.simulation.stable_offsets import _Scan
from tests.simulation.transaction_history import Differs

T0 = TopicPartition("t", 0)
PREFIX = key_prefix("g", "t")
ONGOING, PREPARE_COMMIT = TransactionState.ONGOING, TransactionState.PREPARE_COMMIT
Pair = tuple[bytes, bytes | None]


def batch(pairs: Sequence[Pair], offset: int, producer_id: int = -1) -> Content:
    records = [Record(offset=number, timestamp=0, key=key, value=value) for number, (key, value) in enumerate(pairs)]
    is_transactional = producer_id >= 0
    content = bytearray(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
    )
    return at(content, offset)


def marker(producer_id: int, offset: int, *, aborted: bool = False) -> Content:
    content = build_end_transaction_marker(
        ControlType.ABORT if aborted else ControlType.COMMIT,
        timestamp=0,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    return at(bytearray(content), offset)


def at(content: bytearray, offset: int) -> Content:
    content[:8] = offset.to_bytes(8, "big")
    return Content(read_batch_header(bytes(content)), bytes(content))


def commit(offset: int, partition: int = 0) -> Pair:
    return offset_key(PREFIX, partition), offset_value(CommittedOffset(offset, -1, "", 0))


def state_of(state: TransactionState, *partitions: TopicPartition) -> Pair:
    record = transaction_record("x", Transit(state, 7, -1, 2, -1, 1000, frozenset(partitions), 5, 5))
    return record.key, record.value


def test_the_last_record_of_a_transactional_id_counts_and_the_recent_ones_are_known() -> None:
    ledger, noted = TransactionLedger(), list[Any]()
    ledger.take(batch([state_of(ONGOING, T0), state_of(PREPARE_COMMIT, T0)], 4), lambda *what: noted.append(what))
    assert ledger.now["x"].state is PREPARE_COMMIT
    assert ledger.now["x"].partitions == {T0}
    assert [(offset, name, found.state) for offset, name, found in noted] == [
        (4, "x", ONGOING),
        (5, "x", PREPARE_COMMIT),
    ]
    branch = ledger.branch()
    branch.take(batch([tuple(tombstone("x"))], 6), lambda *_: None)  # type: ignore[list-item]
    assert (branch.now, set(ledger.now)) == ({}, {"x"})
    assert len(ledger.recent["x"]) == 2


def test_an_offset_in_a_transaction_counts_when_its_marker_commits() -> None:
    ledger, key = GroupLedger(), Key("g", "t", 0)
    ledger.take(batch([commit(3)], 0))
    ledger.take(batch([commit(4)], 1, producer_id=7))
    ledger.take(batch([commit(9)], 2, producer_id=8))
    assert ledger.offsets == {key: Written(3, 0)}
    branch = ledger.branch()
    branch.take(marker(8, 3, aborted=True))
    branch.take(marker(7, 4))
    assert (branch.offsets, branch.open) == ({key: Written(4, 1)}, {})
    assert set(ledger.open) == {7, 8}


def test_a_later_commit_wins_over_one_in_a_transaction_and_a_tombstone_removes_both() -> None:
    ledger, key = GroupLedger(), Key("g", "t", 0)
    ledger.take(batch([commit(4)], 0, producer_id=7))
    ledger.take(batch([commit(5)], 1))
    ledger.take(marker(7, 2))
    assert ledger.offsets == {key: Written(5, 1)}
    ledger.take(batch([commit(6)], 3, producer_id=7))
    ledger.take(batch([(offset_key(PREFIX, 0), None)], 4))
    ledger.take(marker(7, 5))
    assert ledger.offsets == {}


def test_what_differs_of_a_transactional_id_is_named() -> None:
    logged = LoggedTransaction(ONGOING, 7, 2, 1000, frozenset([T0]))

    def what(found: LoggedTransaction | None) -> list[str]:
        return [each[0] for each in different_transactions("x", found, logged)]

    assert what(logged) == []
    assert what(None) == ["transactional id x"]
    assert what(logged._replace(state=PREPARE_COMMIT)) == ["the state of transactional id x"]
    assert what(logged._replace(partitions=frozenset())) == ["the partitions of transactional id x"]
    assert what(logged._replace(producer_epoch=3)) == ["the producer of transactional id x"]


def test_what_differs_of_a_group_is_named() -> None:
    logged = LoggedGroup(3, "range", "m", {"m": (None, b"all"), "n": (None, b"")})

    def what(found: LoggedGroup | None) -> list[str]:
        return [each[0] for each in different_groups("g", found, logged)]

    assert what(logged) == []
    assert what(None) == ["group g"]
    assert what(logged._replace(generation=2)) == ["the generation of group g"]
    assert what(logged._replace(members={"m": (None, b"all")})) == ["the members of group g"]
    assert what(logged._replace(leader="n")) == ["the leader of group g"]
    assert what(logged._replace(members={"m": (None, b""), "n": (None, b"")})) == ["the assignments in group g"]
    assert what(logged._replace(protocol="sticky")) == ["the protocol of group g"]


def test_a_stable_group_is_as_its_leaders_log_has_it_in_a_committed_generation() -> None:
    harness = GroupHarness()
    harness.sync_all([harness.join(instance="one").response.member_id], 1)
    committed = GroupLedger()
    committed.take(batch(harness.log.records, 0))
    assert list(groups_astray(harness.shard, committed, committed)) == []
    assert [what for what, *_ in groups_astray(harness.shard, GroupLedger(), committed)] == [
        "an uncommitted generation of group g"
    ]
    harness.log.is_held = True
    harness.join(instance="one")
    harness.log.settle(ErrorCode.REQUEST_TIMED_OUT)
    at_end = committed.branch()
    at_end.take(batch(harness.log.records[1:], 1))
    assert list(groups_astray(harness.shard, committed, at_end)) == []
    assert [what for what, *_ in groups_astray(harness.shard, committed, committed)] == ["the members of group g"]


def test_an_offset_is_committed_or_was_in_the_log_when_the_coordinator_was_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents = [batch([commit(1)], 0), batch([commit(2)], 1, producer_id=7), marker(7, 2)]
    shard = GroupHarness().shard
    shard.offsets.replay(CoordinatorRecord(*commit(1)), offset=0)
    shard.offsets.replay(CoordinatorRecord(*commit(2)), offset=1, producer_id=7)
    shard.replay_end_transaction(7, 0, True)
    key = TopicPartition("__consumer_offsets", 0)
    state = SimpleNamespace(high_watermark=2, log_end_offset=3)
    partition: Any = SimpleNamespace(
        topic_partition=key, leader_epoch=6, epoch_start_offset=2, log=SimpleNamespace(state=state)
    )
    broker: Any = SimpleNamespace(
        replica_manager=SimpleNamespace(partitions={key: partition}),
        coordinators=SimpleNamespace(groups=SimpleNamespace(shards=lambda: [shard])),
        metadata=SimpleNamespace(topics={}),
    )
    led: Any = SimpleNamespace(topic_partition=key, shard=shard)
    monkeypatch.setattr(
        coordinator_logs,
        "batches_from",
        lambda _, offset, end_offset: (each for each in contents if offset <= each.header.base_offset < end_offset),
    )
    history = History()
    logs = CoordinatorLogs(history, {})
    logs._compare_loaded("broker-1", broker, led)
    logs._compare("broker-1", broker, partition)
    assert list(history.of(Differs)) == []

    contents.append(batch([commit(3)], 3))
    state.log_end_offset = 4
    shard.offsets.replay(CoordinatorRecord(*commit(3)), offset=3)
    logs._compare("broker-1", broker, partition)
    assert [(each.in_memory, each.in_log) for each in history.of(Differs)] == [("3", str(Written(2, 1)))]


def test_a_state_is_compared_with_the_one_in_the_log_that_is_nearest() -> None:
    before = LoggedTransaction(ONGOING, 7, 2, 1000, frozenset([T0]))
    recent = [before, before._replace(state=PREPARE_COMMIT, producer_epoch=3), None]
    assert _nearest(before._replace(partitions=frozenset()), recent) is before
    assert _nearest(before, [None]) is None


def test_an_offset_that_is_missing_or_too_much_differs() -> None:
    a, b, c = (Key("g", "t", partition) for partition in range(3))
    assert list(different_offsets({a: 1, b: 2}, {b: 2, c: 3})) == [
        (f"a deleted offset of {a}", 1, None),
        (f"the offset of {c}", None, 3),
    ]
    assert list(different_open_commits({(7, a): 1}, {(7, a): 2})) == [(f"the open commit of {(7, a)}", 1, 2)]


def test_a_transaction_is_open_until_its_marker_is_below_the_high_watermark() -> None:
    scan = _Scan(None)  # type: ignore[arg-type]
    scan.take(batch([commit(1)], 0).header, 0)
    scan.take(batch([commit(1)], 1, producer_id=7).header, 0)
    scan.take(batch([commit(1)], 2, producer_id=7).header, 0)
    assert scan.first_open(3) == 1
    scan.take(marker(7, 3).header, 0)
    assert scan.first_open(3) == 1
    assert scan.first_open(4) is None

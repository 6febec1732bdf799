"""Transactions that are open for too long and unused transactional ids, with a manual clock."""

import pytest

from odradek.broker.coordinator.shard import Decision
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.state import PREPARE_COMMIT
from odradek.broker.coordinator.transaction.timeouts import (
    ABORTS_PER_STEP,
    BYTES_PER_BATCH,
    abort_steps,
    abort_timed_out,
    expiry_steps,
)
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.transaction.rooms import MINUTE_MS, ORDERS, TransactionRoom

WEEK_MS = 7 * 24 * 60 * MINUTE_MS


@pytest.fixture
def room() -> TransactionRoom:
    return TransactionRoom()


def abort_late(room: TransactionRoom) -> int:
    return abort_timed_out(room.coordinator, room.clock.wall_ms())


def expire(room: TransactionRoom) -> int:
    return sum(expiry_steps(room.coordinator, room.clock.wall_ms(), WEEK_MS))


# Timeouts


def test_a_transaction_is_aborted_when_its_timeout_expires(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.clock.advance(MINUTE_MS)
    assert abort_late(room) == 0
    room.clock.advance(1)
    assert abort_late(room) == 1
    assert room.state() == "CompleteAbort"
    (marker,) = room.markers[ORDERS]
    assert (marker.producer, marker.committed) == (producer._replace(producer_epoch=1), False)


def test_many_expired_transactions_are_aborted_a_few_at_a_time(room: TransactionRoom) -> None:
    names = [f"late-{number}" for number in range(ABORTS_PER_STEP + 2)]
    producers = {name: room.init(name) for name in names}
    for name, producer in producers.items():
        room.add(producer, name=name)
    room.clock.advance(MINUTE_MS + 1)
    steps = abort_steps(room.coordinator, room.clock.wall_ms())
    assert next(steps) == ABORTS_PER_STEP
    last = names[-1]
    room.end(producers[last], name=last)  # between two steps
    assert list(steps) == [1]
    assert room.state(last) == "CompleteCommit"


def test_the_timeout_runs_from_the_first_partition_on(room: TransactionRoom) -> None:
    producer = room.init()
    room.clock.advance(10 * MINUTE_MS)
    assert abort_late(room) == 0
    room.add(producer)
    room.clock.advance(MINUTE_MS)
    room.existing.add(ORDERS._replace(partition=1))
    room.add(producer, ORDERS._replace(partition=1))
    room.clock.advance(1)
    assert abort_late(room) == 1


def test_the_producer_of_an_expired_transaction_is_fenced(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.clock.advance(MINUTE_MS + 1)
    abort_late(room)
    assert room.end(producer) is ErrorCode.PRODUCER_FENCED
    assert room.add(producer) is ErrorCode.PRODUCER_FENCED
    assert room.init() == producer._replace(producer_epoch=2)


def test_a_transaction_that_is_being_committed_is_not_aborted(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.markers_held = True
    room.end(producer)
    room.clock.advance(WEEK_MS)
    assert abort_late(room) == 0
    assert room.transaction().state == PREPARE_COMMIT
    room.release_markers()
    assert room.state() == "CompleteCommit"


def test_a_commit_whose_record_is_not_replicated_yet_is_not_aborted(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.appends_held = True
    room.end(producer)
    room.clock.advance(WEEK_MS)
    assert abort_late(room) == 0


def test_an_abort_that_cannot_be_written_is_retried_at_the_next_check(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.clock.advance(MINUTE_MS + 1)
    room.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    abort_late(room)
    assert room.state() == "Ongoing"
    room.append_failure = None
    abort_late(room)
    assert (room.state(), room.transaction().producer_epoch) == ("CompleteAbort", 1)


def test_a_transaction_open_across_a_restart_is_aborted_when_its_timeout_expires(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.restart()
    assert abort_late(room) == 0
    room.clock.advance(MINUTE_MS + 1)
    assert abort_late(room) == 1
    assert [marker.committed for marker in room.markers[ORDERS]] == [False]


# Expiry


def test_an_id_expires_a_week_after_its_last_use(room: TransactionRoom) -> None:
    room.init()
    room.clock.advance(WEEK_MS - 1)
    assert expire(room) == 0
    room.clock.advance(1)
    assert expire(room) == 1
    assert room.shard.transactions == {}
    assert room.log[-1].value is None


def test_an_expired_id_is_not_loaded_after_a_restart(room: TransactionRoom) -> None:
    producer = room.init()
    room.clock.advance(WEEK_MS)
    expire(room)
    room.restart()
    assert room.shard.transactions == {}
    assert room.add(producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert room.init() == ProducerIdAndEpoch(producer.producer_id + 1, 0)


def test_ids_expire_after_ended_transactions_but_not_during_open_ones(room: TransactionRoom) -> None:
    for name in ("committed", "aborted", "open", "prepared"):
        room.add(room.init(name), name=name)
    room.end(ProducerIdAndEpoch(1001, 0), True, "committed")
    room.end(ProducerIdAndEpoch(1002, 0), False, "aborted")
    room.markers_held = True
    room.end(ProducerIdAndEpoch(1004, 0), True, "prepared")
    room.clock.advance(WEEK_MS)
    assert expire(room) == 2
    assert set(room.shard.transactions) == {"open", "prepared"}


def test_an_id_refuses_requests_while_its_tombstone_waits(room: TransactionRoom) -> None:
    producer = room.init()
    room.clock.advance(WEEK_MS)
    room.appends_held = True
    assert expire(room) == 1
    assert room.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.add(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert expire(room) == 0
    room.release_appends()
    assert room.shard.transactions == {}


def test_an_id_whose_tombstone_cannot_be_written_is_kept(room: TransactionRoom) -> None:
    producer = room.init()
    room.clock.advance(WEEK_MS)
    room.append_failure = ErrorCode.KAFKA_STORAGE_ERROR
    expire(room)
    room.append_failure = None
    assert room.add(producer) is ErrorCode.NONE


def test_many_ids_expire_in_steps_and_in_batches_that_fit(room: TransactionRoom) -> None:
    for number in range(2500):
        room.init(f"id-{number:04}")
    room.clock.advance(WEEK_MS)
    batches: list[int] = []
    act = room.act

    def counted(shard: TransactionShard, decision: Decision) -> None:
        batches.append(sum(len(record.key) for record in decision.records))
        act(shard, decision)

    room.act = counted  # type: ignore[method-assign]
    assert list(expiry_steps(room.coordinator, room.clock.wall_ms(), WEEK_MS)) == [1000, 1000, 500]
    assert max(batches) <= BYTES_PER_BATCH
    assert room.shard.transactions == {}


def test_an_id_of_maximum_length_expires(room: TransactionRoom) -> None:
    name = "x" * 32767
    room.init(name)
    room.init("short")
    room.clock.advance(WEEK_MS)
    assert expire(room) == 2
    assert room.shard.transactions == {}

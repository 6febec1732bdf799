"""Transactions that are open for too long and unused transactional ids, with a manual clock."""

import pytest

from odradek.broker.coordinator.runtime.shard import Decision
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.timeouts import (
    ABORTS_PER_STEP,
    BYTES_PER_BATCH,
    abort_steps,
    abort_timed_out,
    expiry_steps,
)
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.transaction.harness import MINUTE_MS, ORDERS, TransactionHarness

WEEK_MS = 7 * 24 * 60 * MINUTE_MS


@pytest.fixture
def harness() -> TransactionHarness:
    return TransactionHarness()


def abort_late(harness: TransactionHarness) -> int:
    return abort_timed_out(harness.coordinator, harness.clock.wall_ms())


def expire(harness: TransactionHarness) -> int:
    return sum(expiry_steps(harness.coordinator, harness.clock.wall_ms(), WEEK_MS))


# Timeouts


def test_a_transaction_is_aborted_when_its_timeout_expires(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.clock.advance(MINUTE_MS)
    assert abort_late(harness) == 0
    harness.clock.advance(1)
    assert abort_late(harness) == 1
    assert harness.state() == "CompleteAbort"
    (marker,) = harness.markers[ORDERS]
    assert (marker.producer, marker.committed) == (producer._replace(producer_epoch=1), False)


def test_many_expired_transactions_are_aborted_a_few_at_a_time(harness: TransactionHarness) -> None:
    names = [f"late-{number}" for number in range(ABORTS_PER_STEP + 2)]
    producers = {name: harness.init(name) for name in names}
    for name, producer in producers.items():
        harness.add(producer, name=name)
    harness.clock.advance(MINUTE_MS + 1)
    steps = abort_steps(harness.coordinator, harness.clock.wall_ms())
    assert next(steps) == ABORTS_PER_STEP
    last = names[-1]
    harness.end(producers[last], name=last)  # between two steps
    assert list(steps) == [1]
    assert harness.state(last) == "CompleteCommit"


def test_a_commit_whose_record_is_not_replicated_yet_is_not_aborted(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.appends_held = True
    harness.end(producer)
    harness.clock.advance(WEEK_MS)
    assert abort_late(harness) == 0


# Expiry


def test_an_id_expires_a_week_after_its_last_use(harness: TransactionHarness) -> None:
    harness.init()
    harness.clock.advance(WEEK_MS - 1)
    assert expire(harness) == 0
    harness.clock.advance(1)
    assert expire(harness) == 1
    assert harness.shard.transactions == {}
    assert harness.log[-1].value is None


def test_an_expired_id_is_not_loaded_after_a_restart(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.clock.advance(WEEK_MS)
    expire(harness)
    harness.restart()
    assert harness.shard.transactions == {}
    assert harness.add(producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.init() == ProducerIdAndEpoch(producer.producer_id + 1, 0)


def test_an_id_refuses_requests_while_its_tombstone_waits(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.clock.advance(WEEK_MS)
    harness.appends_held = True
    assert expire(harness) == 1
    assert harness.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.add(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert expire(harness) == 0
    harness.release_appends()
    assert harness.shard.transactions == {}


def test_many_ids_expire_in_steps_and_in_batches_that_fit(harness: TransactionHarness) -> None:
    for number in range(2500):
        harness.init(f"id-{number:04}")
    harness.clock.advance(WEEK_MS)
    batches: list[int] = []
    act = harness.act

    def counted(shard: TransactionShard, decision: Decision) -> None:
        batches.append(sum(len(record.key) for record in decision.records))
        act(shard, decision)

    harness.act = counted  # type: ignore[method-assign]
    assert list(expiry_steps(harness.coordinator, harness.clock.wall_ms(), WEEK_MS)) == [1000, 1000, 500]
    assert max(batches) <= BYTES_PER_BATCH
    assert harness.shard.transactions == {}


def test_an_id_of_maximum_length_expires(harness: TransactionHarness) -> None:
    name = "x" * 32767
    harness.init(name)
    harness.init("short")
    harness.clock.advance(WEEK_MS)
    assert expire(harness) == 2
    assert harness.shard.transactions == {}

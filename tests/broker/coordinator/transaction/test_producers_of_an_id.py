"""InitProducerId: one producer per transactional id, epochs, fencing, and ids whose epochs are used up."""

import pytest

from odradek.broker.coordinator.transaction.transaction import LARGEST_EPOCH, ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.transaction.harness import LONGEST_TIMEOUT_MS, ORDERS, RETURNS, TransactionHarness


@pytest.fixture
def harness() -> TransactionHarness:
    return TransactionHarness()


def exhaust(harness: TransactionHarness) -> ProducerIdAndEpoch:
    """Returns the producer with the last epoch of its producer id, as after 32766 others."""
    harness.init()
    harness.transaction().producer_epoch = LARGEST_EPOCH - 2
    producer: ProducerIdAndEpoch = harness.init()
    assert producer.producer_epoch == LARGEST_EPOCH - 1
    return producer


def test_the_epoch_is_in_the_log_before_it_is_returned(harness: TransactionHarness) -> None:
    harness.init()
    harness.appends_held = True
    assert harness.init() is None
    harness.crash()
    harness.appends_held = False
    harness.start()
    assert harness.init() == ProducerIdAndEpoch(1001, 1)


def test_a_new_producer_aborts_the_open_transaction_and_must_retry(harness: TransactionHarness) -> None:
    old = harness.init()
    harness.add(old, ORDERS, RETURNS)
    assert harness.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.state() == "CompleteAbort"
    for partition in (ORDERS, RETURNS):
        (marker,) = harness.markers[partition]
        assert (marker.producer, marker.committed) == (old._replace(producer_epoch=1), False)
    assert harness.init() == old._replace(producer_epoch=2)


def test_the_old_producer_is_fenced_from_the_moment_the_abort_is_decided(harness: TransactionHarness) -> None:
    old = harness.init()
    harness.add(old)
    harness.appends_held = True
    assert harness.init() is None
    assert harness.end(old) is ErrorCode.PRODUCER_FENCED
    assert harness.verify(old) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_request_during_another_is_a_concurrent_transaction(harness: TransactionHarness) -> None:
    harness.init()
    harness.appends_held = True
    assert harness.init() is None
    assert harness.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.add(ProducerIdAndEpoch(1001, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.end(ProducerIdAndEpoch(1001, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_id_whose_first_record_cannot_be_written_is_not_created(harness: TransactionHarness) -> None:
    harness.append_failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.init() is ErrorCode.NOT_COORDINATOR
    assert harness.shard.transactions == {}


def test_a_failed_producer_id_allocation_is_returned_to_the_client(harness: TransactionHarness) -> None:
    harness.producer_id_failure = ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert harness.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.shard.transactions == {}


@pytest.mark.parametrize("timeout_ms", [0, -1, LONGEST_TIMEOUT_MS + 1])
def test_a_transaction_timeout_out_of_bounds_is_refused(harness: TransactionHarness, timeout_ms: int) -> None:
    assert harness.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_timeouts_at_the_bounds_are_accepted_and_the_last_one_applies(harness: TransactionHarness) -> None:
    harness.init(timeout_ms=LONGEST_TIMEOUT_MS)
    harness.init(timeout_ms=1)
    assert harness.transaction().timeout_ms == 1


def test_an_empty_transactional_id_is_refused_by_every_request(harness: TransactionHarness) -> None:
    producer = ProducerIdAndEpoch(1001, 0)
    assert harness.init("") is ErrorCode.INVALID_REQUEST
    assert harness.add(producer, name="") is ErrorCode.INVALID_REQUEST
    assert harness.end(producer, name="") is ErrorCode.INVALID_REQUEST
    assert harness.verify(producer, name="") is ErrorCode.INVALID_REQUEST


# A producer that continues after an error (KIP-360)


def test_a_producer_that_retries_after_a_lost_response_gets_the_same_epoch(harness: TransactionHarness) -> None:
    producer = harness.init()
    answer = harness.init(expected=producer)
    for _ in range(3):
        assert harness.init(expected=producer) == answer


def test_a_producer_whose_transactional_id_expired_gets_a_new_producer_id(harness: TransactionHarness) -> None:
    assert harness.init(expected=ProducerIdAndEpoch(77, 5)) == ProducerIdAndEpoch(1001, 0)


# Exhausted epochs


def test_the_producer_with_the_last_epoch_continues_with_a_new_producer_id_and_may_retry(
    harness: TransactionHarness,
) -> None:
    last = exhaust(harness)
    new = harness.init(expected=last)
    assert new == ProducerIdAndEpoch(last.producer_id + 1, 0)
    for _ in range(3):
        assert harness.init(expected=last) == new


def test_a_retry_of_the_request_that_returned_the_last_epoch_returns_it_again(harness: TransactionHarness) -> None:
    harness.init()
    harness.transaction().producer_epoch = LARGEST_EPOCH - 3
    before = harness.init()
    last = harness.init(expected=before)
    assert last.producer_epoch == LARGEST_EPOCH - 1
    assert harness.init(expected=before) == last
    assert harness.init(expected=before._replace(producer_epoch=7)) is ErrorCode.PRODUCER_FENCED

"""InitProducerId: one producer per transactional id, epochs, fencing, and ids whose epochs are used up."""

import pytest

from odradek.broker.coordinator.transaction.transaction import LARGEST_EPOCH, ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.transaction.rooms import LONGEST_TIMEOUT_MS, ORDERS, RETURNS, TransactionRoom


@pytest.fixture
def room() -> TransactionRoom:
    return TransactionRoom()


def exhaust(room: TransactionRoom) -> ProducerIdAndEpoch:
    """Returns the producer with the last epoch of its producer id, as after 32766 others."""
    room.init()
    room.transaction().producer_epoch = LARGEST_EPOCH - 2
    producer: ProducerIdAndEpoch = room.init()
    assert producer.producer_epoch == LARGEST_EPOCH - 1
    return producer


def test_the_first_producer_of_an_id_gets_a_new_producer_id_and_epoch_0(room: TransactionRoom) -> None:
    assert room.init() == ProducerIdAndEpoch(1001, 0)
    assert room.init("u") == ProducerIdAndEpoch(1002, 0)


def test_each_producer_of_an_id_gets_the_next_epoch_and_fences_the_previous_ones(room: TransactionRoom) -> None:
    first, second = room.init(), room.init()
    assert second == ProducerIdAndEpoch(first.producer_id, 1)
    assert room.add(first) is ErrorCode.PRODUCER_FENCED
    assert room.end(first) is ErrorCode.PRODUCER_FENCED
    assert room.add(second) is ErrorCode.NONE


def test_the_epoch_is_in_the_log_before_it_is_returned(room: TransactionRoom) -> None:
    room.init()
    room.appends_held = True
    assert room.init() is None
    room.crash()
    room.appends_held = False
    room.start()
    assert room.init() == ProducerIdAndEpoch(1001, 1)


def test_a_new_producer_aborts_the_open_transaction_and_must_retry(room: TransactionRoom) -> None:
    old = room.init()
    room.add(old, ORDERS, RETURNS)
    assert room.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.state() == "CompleteAbort"
    for partition in (ORDERS, RETURNS):
        (marker,) = room.markers[partition]
        assert (marker.producer, marker.committed) == (old._replace(producer_epoch=1), False)
    assert room.init() == old._replace(producer_epoch=2)


def test_new_producers_must_retry_while_the_abort_is_being_written(room: TransactionRoom) -> None:
    old = room.init()
    room.add(old)
    room.markers_held = True
    assert [room.init() for _ in range(3)] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    assert room.state() == "PrepareAbort"
    room.release_markers()
    assert room.init() == old._replace(producer_epoch=2)


def test_the_old_producer_is_fenced_from_the_moment_the_abort_is_decided(room: TransactionRoom) -> None:
    old = room.init()
    room.add(old)
    room.appends_held = True
    assert room.init() is None
    assert room.end(old) is ErrorCode.PRODUCER_FENCED
    assert room.verify(old) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_fence_that_cannot_be_written_does_not_use_up_a_second_epoch(room: TransactionRoom) -> None:
    old = room.init()
    room.add(old)
    room.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert room.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.state() == "Ongoing"
    room.append_failure = None
    assert room.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.init() == old._replace(producer_epoch=2)


def test_a_request_during_another_is_a_concurrent_transaction(room: TransactionRoom) -> None:
    room.init()
    room.appends_held = True
    assert room.init() is None
    assert room.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.add(ProducerIdAndEpoch(1001, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.end(ProducerIdAndEpoch(1001, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_id_whose_first_record_cannot_be_written_is_not_created(room: TransactionRoom) -> None:
    room.append_failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert room.init() is ErrorCode.NOT_COORDINATOR
    assert room.shard.transactions == {}


def test_a_failed_producer_id_allocation_is_returned_to_the_client(room: TransactionRoom) -> None:
    room.producer_id_failure = ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert room.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert room.shard.transactions == {}


@pytest.mark.parametrize("timeout_ms", [0, -1, LONGEST_TIMEOUT_MS + 1])
def test_a_transaction_timeout_out_of_bounds_is_refused(room: TransactionRoom, timeout_ms: int) -> None:
    assert room.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_timeouts_at_the_bounds_are_accepted_and_the_last_one_applies(room: TransactionRoom) -> None:
    room.init(timeout_ms=LONGEST_TIMEOUT_MS)
    room.init(timeout_ms=1)
    assert room.transaction().timeout_ms == 1


def test_an_empty_transactional_id_is_refused_by_every_request(room: TransactionRoom) -> None:
    producer = ProducerIdAndEpoch(1001, 0)
    assert room.init("") is ErrorCode.INVALID_REQUEST
    assert room.add(producer, name="") is ErrorCode.INVALID_REQUEST
    assert room.end(producer, name="") is ErrorCode.INVALID_REQUEST
    assert room.verify(producer, name="") is ErrorCode.INVALID_REQUEST


# A producer that continues after an error (KIP-360)


def test_a_producer_that_continues_after_an_error_gets_the_next_epoch(room: TransactionRoom) -> None:
    producer = room.init()
    assert room.init(expected=producer) == producer._replace(producer_epoch=1)


def test_a_producer_that_retries_after_a_lost_response_gets_the_same_epoch(room: TransactionRoom) -> None:
    producer = room.init()
    answer = room.init(expected=producer)
    for _ in range(3):
        assert room.init(expected=producer) == answer


def test_a_producer_that_continues_after_another_took_over_is_fenced(room: TransactionRoom) -> None:
    old, new = room.init(), room.init()
    assert room.init(expected=old) is ErrorCode.PRODUCER_FENCED
    assert room.init(expected=new) == new._replace(producer_epoch=2)


def test_a_zombie_that_continues_does_not_abort_its_successors_transaction(room: TransactionRoom) -> None:
    old, new = room.init(), room.init()
    room.add(new)
    assert room.init(expected=old) is ErrorCode.PRODUCER_FENCED
    assert room.end(new) is ErrorCode.NONE


def test_a_producer_that_continues_aborts_its_own_open_transaction(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    assert room.init(expected=producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.state() == "CompleteAbort"


def test_a_producer_that_continues_with_a_wrong_producer_id_is_fenced(room: TransactionRoom) -> None:
    room.init()
    assert room.init(expected=ProducerIdAndEpoch(77, 0)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_transactional_id_expired_gets_a_new_producer_id(room: TransactionRoom) -> None:
    assert room.init(expected=ProducerIdAndEpoch(77, 5)) == ProducerIdAndEpoch(1001, 0)


# Exhausted epochs


def test_when_the_epochs_are_used_up_the_next_producer_gets_a_new_producer_id(room: TransactionRoom) -> None:
    last = exhaust(room)
    assert room.init() == ProducerIdAndEpoch(last.producer_id + 1, 0)
    assert room.add(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_producer_with_the_last_epoch_continues_with_a_new_producer_id_and_may_retry(
    room: TransactionRoom,
) -> None:
    last = exhaust(room)
    new = room.init(expected=last)
    assert new == ProducerIdAndEpoch(last.producer_id + 1, 0)
    for _ in range(3):
        assert room.init(expected=last) == new


def test_a_retry_of_the_request_that_returned_the_last_epoch_returns_it_again(room: TransactionRoom) -> None:
    room.init()
    room.transaction().producer_epoch = LARGEST_EPOCH - 3
    before = room.init()
    last = room.init(expected=before)
    assert last.producer_epoch == LARGEST_EPOCH - 1
    assert room.init(expected=before) == last
    assert room.init(expected=before._replace(producer_epoch=7)) is ErrorCode.PRODUCER_FENCED


def test_the_producer_with_the_last_epoch_can_be_fenced(room: TransactionRoom) -> None:
    last = exhaust(room)
    room.add(last)
    assert room.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    (marker,) = room.markers[ORDERS]
    assert marker.producer == last._replace(producer_epoch=LARGEST_EPOCH)
    assert room.init() == ProducerIdAndEpoch(last.producer_id + 1, 0)


def test_no_producer_can_use_the_epoch_reserved_for_fencing(room: TransactionRoom) -> None:
    last = exhaust(room)
    room.add(last)
    room.init()
    kept = last._replace(producer_epoch=LARGEST_EPOCH)
    assert room.add(kept) is ErrorCode.PRODUCER_FENCED
    assert room.end(kept) is ErrorCode.PRODUCER_FENCED


def test_a_fence_of_the_last_epoch_that_cannot_be_written_is_retried(room: TransactionRoom) -> None:
    last = exhaust(room)
    room.add(last)
    room.append_failure = ErrorCode.REQUEST_TIMED_OUT
    assert room.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.append_failure = None
    assert room.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.init() == ProducerIdAndEpoch(last.producer_id + 1, 0)

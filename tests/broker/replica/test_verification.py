"""A transactional batch is appended only if the coordinator confirms that the partition is in the transaction."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.rooms import T0, Room

T1 = TopicPartition("t", 1)


class Coordinator:
    """Returns the set answer and records the requests."""

    def __init__(self) -> None:
        self.answer = ErrorCode.NONE
        self.asked: list[tuple[str, int, int, TopicPartition]] = []

    def __call__(self, transactional_id: str, producer_id: int, producer_epoch: int, key: TopicPartition) -> ErrorCode:
        self.asked.append((transactional_id, producer_id, producer_epoch, key))
        return self.answer


@pytest.fixture
def coordinator(room: Room) -> Coordinator:
    coordinator = room.manager.verification.is_open_transaction = Coordinator()
    return coordinator


def transactional(room: Room, sequence: int = 0, producer_id: int = 7, epoch: int = 0) -> bytes:
    return room.batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def refused(room: Room, entries: dict[TopicPartition, bytes]) -> dict[TopicPartition, ErrorCode]:
    results = room.manager.verification.refused("copier", entries)
    return {key: result.error for key, result in results.items()}


def end(room: Room, committed: bool = True) -> None:
    room.manager.append_end_transaction_marker(T0, 7, 0, 0, committed, lambda _: None)
    room.turn()


def test_only_the_first_batch_of_a_transaction_is_verified(room: Room, coordinator: Coordinator) -> None:
    room.lead()
    assert refused(room, {T0: transactional(room)}) == {}
    assert coordinator.asked == [("copier", 7, 0, T0)]
    room.produce(transactional(room))
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(room, {T0: transactional(room, 1)}) == {}
    assert len(coordinator.asked) == 1


def test_a_batch_after_the_end_of_its_transaction_is_refused(room: Room, coordinator: Coordinator) -> None:
    room.lead()
    room.produce(transactional(room))
    end(room, committed=False)
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(room, {T0: transactional(room, 1)}) == {T0: ErrorCode.INVALID_TXN_STATE}
    assert room.manager.verification.failures == 1


def test_each_partition_is_verified_separately(room: Room, coordinator: Coordinator) -> None:
    room.lead()
    room.lead(T1)
    room.produce(transactional(room))
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    batches = {T0: transactional(room, 1), T1: transactional(room)}
    assert refused(room, batches) == {T1: ErrorCode.INVALID_TXN_STATE}


@pytest.mark.parametrize(
    ("answer", "returned"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_coordinator_errors_are_mapped_to_errors_that_producers_know(
    room: Room, coordinator: Coordinator, answer: ErrorCode, returned: ErrorCode
) -> None:
    room.lead()
    coordinator.answer = answer
    assert refused(room, {T0: transactional(room)}) == {T0: returned}


def test_a_coordinator_writing_in_a_transaction_gets_the_error_unmapped(room: Room, coordinator: Coordinator) -> None:
    room.lead()
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.manager.verification.verify("copier", 7, 0, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
    room.produce(transactional(room))
    assert room.manager.verification.verify("copier", 7, 0, T0) is ErrorCode.NONE


def test_after_refusing_an_unknown_producers_batch_later_sequences_are_refused_too(
    room: Room, coordinator: Coordinator
) -> None:
    """Otherwise the batch with sequence 0 could never be sent again."""
    room.lead()
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    refused(room, {T0: transactional(room, 5)})
    refused(room, {T0: transactional(room, 0)})
    refused(room, {T0: transactional(room, 9)})
    coordinator.answer = ErrorCode.NONE
    assert refused(room, {T0: transactional(room, 5)}) == {T0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert refused(room, {T0: transactional(room, 0)}) == {}
    room.produce(transactional(room, 0))
    end(room)
    assert refused(room, {T0: transactional(room, 1)}) == {}, "its sequences are known from the log now"


def test_a_new_epoch_forgets_refused_batches_of_the_old_one(room: Room, coordinator: Coordinator) -> None:
    room.lead()
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    refused(room, {T0: transactional(room, 0, epoch=1)})
    refused(room, {T0: transactional(room, 4, epoch=2)})
    refused(room, {T0: transactional(room, 0, epoch=1)})
    coordinator.answer = ErrorCode.NONE
    assert refused(room, {T0: transactional(room, 4, epoch=2)}) == {}


def test_refused_batches_are_forgotten_when_producers_expire(room: Room, coordinator: Coordinator) -> None:
    state = room.lead().log.producer_state
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    refused(room, {T0: transactional(room, 0)})
    state.remove_expired(room.clock.wall_ms() + state.expiration_ms - 1)
    assert len(state.refused) == 1
    state.remove_expired(room.clock.wall_ms() + state.expiration_ms)
    assert len(state.refused) == 0


def test_batches_of_two_producers_in_one_request_are_refused_whole(room: Room, coordinator: Coordinator) -> None:
    room.lead()
    room.lead(T1)
    with pytest.raises(ProtocolError) as error:
        refused(room, {T0: transactional(room), T1: transactional(room, producer_id=8)})
    assert error.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_nothing_is_verified_for_plain_batches_or_when_verification_is_disabled(
    room: Room, coordinator: Coordinator
) -> None:
    room.lead()
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(room, {T0: room.batch(), T1: b"no batch"}) == {}
    room.manager.verification.is_enabled = False
    assert refused(room, {T0: transactional(room)}) == {}
    assert room.manager.verification.verify("copier", 7, 0, T0) is ErrorCode.NONE
    assert coordinator.asked == []


def test_an_unknown_partition_is_left_to_the_append(room: Room, coordinator: Coordinator) -> None:
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(room, {T0: transactional(room)}) == {}
    assert coordinator.asked == []

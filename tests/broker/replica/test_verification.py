"""A transactional batch is appended only if the coordinator confirms that the partition is in the transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

import pytest

from odradek.broker.replica.leader.verification import ClientSupport, TransactionVerification, VerificationRequest
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import T0, ReplicaHarness, later

T1 = TopicPartition("t", 1)
OTHER = 2
"""Another broker."""


async def answered(verification: TransactionVerification, question: VerificationRequest) -> None:
    """Asks the other broker."""
    assert verification.ask is not None
    verification.answered(question, await verification.ask(question))


class Coordinator:
    """Returns the set answer and records the requests."""

    def __init__(self) -> None:
        self.answer = ErrorCode.NONE
        self.asked: list[tuple[str, int, int, TopicPartition]] = []

    def __call__(self, transactional_id: str, producer_id: int, producer_epoch: int, key: TopicPartition) -> ErrorCode:
        self.asked.append((transactional_id, producer_id, producer_epoch, key))
        return self.answer


@pytest.fixture
def coordinator(harness: ReplicaHarness) -> Coordinator:
    coordinator = harness.manager.verification.is_open_transaction = Coordinator()
    return coordinator


def transactional(harness: ReplicaHarness, sequence: int = 0, producer_id: int = 7, epoch: int = 0) -> bytes:
    return harness.batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def refused(harness: ReplicaHarness, entries: dict[TopicPartition, bytes]) -> dict[TopicPartition, ErrorCode]:
    results = harness.manager.verification.refused("copier", entries)
    return {key: result.error for key, result in results.items()}


def end(harness: ReplicaHarness, committed: bool = True) -> None:
    harness.manager.markers.append(T0, 7, 0, 0, committed, lambda _: None)
    harness.turn()


def test_only_the_first_batch_of_a_transaction_is_verified(harness: ReplicaHarness, coordinator: Coordinator) -> None:
    harness.lead()
    assert refused(harness, {T0: transactional(harness)}) == {}
    assert coordinator.asked == [("copier", 7, 0, T0)]
    harness.produce(transactional(harness))
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(harness, {T0: transactional(harness, 1)}) == {}
    assert len(coordinator.asked) == 1


def test_a_batch_after_the_end_of_its_transaction_is_refused(harness: ReplicaHarness, coordinator: Coordinator) -> None:
    harness.lead()
    harness.produce(transactional(harness))
    end(harness, committed=False)
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(harness, {T0: transactional(harness, 1)}) == {T0: ErrorCode.INVALID_TXN_STATE}
    assert harness.manager.verification.failures == 1


def test_each_partition_is_verified_separately(harness: ReplicaHarness, coordinator: Coordinator) -> None:
    harness.lead()
    harness.lead(T1)
    harness.produce(transactional(harness))
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    batches = {T0: transactional(harness, 1), T1: transactional(harness)}
    assert refused(harness, batches) == {T1: ErrorCode.INVALID_TXN_STATE}


@pytest.mark.parametrize(
    ("answer", "returned"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
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
    harness: ReplicaHarness, coordinator: Coordinator, answer: ErrorCode, returned: ErrorCode
) -> None:
    harness.lead()
    coordinator.answer = answer
    assert refused(harness, {T0: transactional(harness)}) == {T0: returned}


@pytest.mark.parametrize("answer", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE])
def test_producers_that_know_abortable_transactions_get_the_coordinators_error(
    harness: ReplicaHarness, coordinator: Coordinator, answer: ErrorCode
) -> None:
    """INVALID_TXN_STATE: a marker has ended the transaction while the coordinator was asked."""
    harness.lead()
    coordinator.answer = answer
    batches = {T0: transactional(harness)}
    results = harness.manager.verification.refused("copier", batches, support=ClientSupport.KNOWS_ABORTABLE)
    assert results[T0].error is answer


def test_a_coordinator_writing_in_a_transaction_gets_the_error_unmapped(
    harness: ReplicaHarness, coordinator: Coordinator
) -> None:
    harness.lead()
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.manager.verification.verify("copier", 7, 0, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.produce(transactional(harness))
    assert harness.manager.verification.verify("copier", 7, 0, T0) is ErrorCode.NONE


def test_after_refusing_an_unknown_producers_batch_later_sequences_are_refused_too(
    harness: ReplicaHarness, coordinator: Coordinator
) -> None:
    """Otherwise the batch with sequence 0 could never be sent again."""
    harness.lead()
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    refused(harness, {T0: transactional(harness, 5)})
    refused(harness, {T0: transactional(harness, 0)})
    refused(harness, {T0: transactional(harness, 9)})
    coordinator.answer = ErrorCode.NONE
    assert refused(harness, {T0: transactional(harness, 5)}) == {T0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert refused(harness, {T0: transactional(harness, 0)}) == {}
    harness.produce(transactional(harness, 0))
    end(harness)
    assert refused(harness, {T0: transactional(harness, 1)}) == {}, "its sequences are known from the log now"


def test_a_new_epoch_forgets_refused_batches_of_the_old_one(harness: ReplicaHarness, coordinator: Coordinator) -> None:
    harness.lead()
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    refused(harness, {T0: transactional(harness, 0, epoch=1)})
    refused(harness, {T0: transactional(harness, 4, epoch=2)})
    refused(harness, {T0: transactional(harness, 0, epoch=1)})
    coordinator.answer = ErrorCode.NONE
    assert refused(harness, {T0: transactional(harness, 4, epoch=2)}) == {}


def test_refused_batches_are_forgotten_when_producers_expire(harness: ReplicaHarness, coordinator: Coordinator) -> None:
    state = harness.lead().log.producers.state
    coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
    refused(harness, {T0: transactional(harness, 0)})
    state.remove_expired(harness.clock.wall_ms() + state.expiration_ms - 1)
    assert len(state.refused) == 1
    state.remove_expired(harness.clock.wall_ms() + state.expiration_ms)
    assert len(state.refused) == 0


def test_batches_of_two_producers_in_one_request_are_refused_whole(
    harness: ReplicaHarness, coordinator: Coordinator
) -> None:
    harness.lead()
    harness.lead(T1)
    with pytest.raises(ProtocolError) as error:
        refused(harness, {T0: transactional(harness), T1: transactional(harness, producer_id=8)})
    assert error.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_nothing_is_verified_for_plain_batches_or_when_verification_is_disabled(
    harness: ReplicaHarness, coordinator: Coordinator
) -> None:
    harness.lead()
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(harness, {T0: harness.batch(), T1: b"no batch"}) == {}
    harness.verifies_transactions = False
    assert refused(harness, {T0: transactional(harness)}) == {}
    assert harness.manager.verification.verify("copier", 7, 0, T0) is ErrorCode.NONE
    assert coordinator.asked == []


def test_an_unknown_partition_is_left_to_the_append(harness: ReplicaHarness, coordinator: Coordinator) -> None:
    coordinator.answer = ErrorCode.INVALID_TXN_STATE
    assert refused(harness, {T0: transactional(harness)}) == {}
    assert coordinator.asked == []


# The coordinator is another broker


class OtherCoordinator:
    """The coordinator on another broker. The test settles each question; `elsewhere` are the ids that it has."""

    def __init__(self, harness: ReplicaHarness) -> None:
        self.verification = harness.manager.verification
        self.verification.ask = self.ask
        self.verification.elsewhere = lambda name: OTHER if name in self.elsewhere else None
        self.elsewhere = {"copier"}
        self.asked: list[tuple[VerificationRequest, asyncio.Future[dict[TopicPartition, ErrorCode]]]] = []

    async def ask(self, question: VerificationRequest) -> dict[TopicPartition, ErrorCode]:
        answer: asyncio.Future[dict[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        self.asked.append((question, answer))
        return await answer

    async def answered(
        self,
        question: VerificationRequest | None,
        code: ErrorCode = ErrorCode.NONE,
        before: Callable[[], object] = lambda: None,
    ) -> VerificationRequest:
        """Asks the question. `before` is called while the answer is on its way."""
        assert question is not None
        asking = asyncio.ensure_future(answered(self.verification, question))
        await asyncio.sleep(0)
        before()
        self.asked[-1][1].set_result(dict.fromkeys(question.partitions, code))
        await asking
        return question

    def about(self, entries: dict[TopicPartition, bytes]) -> VerificationRequest | None:
        return self.verification.needed("copier", entries)

    def refused(
        self, entries: dict[TopicPartition, bytes], question: VerificationRequest
    ) -> dict[TopicPartition, ErrorCode]:
        results = self.verification.refused("copier", entries, question)
        return {key: result.error for key, result in results.items()}


@pytest.fixture
def other(harness: ReplicaHarness, coordinator: Coordinator) -> OtherCoordinator:
    """This broker's coordinator then says that it is not the one."""
    coordinator.answer = ErrorCode.NOT_COORDINATOR
    return OtherCoordinator(harness)


async def test_the_coordinator_elsewhere_is_asked_about_the_partitions_without_an_open_transaction(
    harness: ReplicaHarness, coordinator: Coordinator, other: OtherCoordinator
) -> None:
    harness.lead()
    harness.lead(T1)
    harness.produce(transactional(harness))
    batches = {T0: transactional(harness, 1), T1: transactional(harness)}
    question = await other.answered(other.about(batches))
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("copier", 7, 0)
    assert question.partitions == (T1,)
    assert other.refused(batches, question) == {}
    assert coordinator.asked == []


async def test_nobody_is_asked_about_plain_batches_ids_of_this_broker_or_partitions_led_elsewhere(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    partition = harness.lead()
    batches = {T0: transactional(harness)}
    assert other.about({T0: harness.batch(), T1: b"no batch"}) is None
    assert other.about({T1: transactional(harness)}) is None
    assert other.verification.needed("of this broker", batches) is None
    harness.verifies_transactions = False
    assert other.about(batches) is None
    harness.verifies_transactions = True
    assert other.about(batches) is not None
    partition.make_follower(later(partition, 1, (0, 1)))
    assert other.about(batches) is None


async def test_batches_of_two_producers_are_not_asked_about(harness: ReplicaHarness, other: OtherCoordinator) -> None:
    harness.lead()
    harness.lead(T1)
    with pytest.raises(ProtocolError) as error:
        other.about({T0: transactional(harness), T1: transactional(harness, producer_id=8)})
    assert error.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("answer", "returned"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_errors_of_another_brokers_coordinator_are_mapped_as_those_of_ones_own(
    harness: ReplicaHarness, other: OtherCoordinator, answer: ErrorCode, returned: ErrorCode
) -> None:
    harness.lead()
    batches = {T0: transactional(harness)}
    question = await other.answered(other.about(batches), answer)
    assert other.refused(batches, question) == {T0: returned}
    assert other.verification.failures == 1
    assert other.verification.verify("copier", 7, 0, T0, question) is answer


async def test_a_partition_that_the_answer_lacks_could_not_be_verified(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    batches = {T0: transactional(harness)}
    question = other.about(batches)
    assert question is not None
    asking = asyncio.ensure_future(answered(other.verification, question))
    await asyncio.sleep(0)
    other.asked[-1][1].set_result({})
    await asking
    assert other.refused(batches, question) == {T0: ErrorCode.NOT_ENOUGH_REPLICAS}


async def test_a_marker_between_the_question_and_its_answer_makes_the_answer_void(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    """The transaction was aborted. Its late batch would begin one that nothing ever ends."""
    harness.lead()
    batches = {T0: transactional(harness)}
    question = await other.answered(other.about(batches), before=lambda: end(harness, committed=False))
    assert other.refused(batches, question) == {T0: ErrorCode.INVALID_TXN_STATE}


async def test_a_marker_between_the_answer_and_the_append_makes_the_answer_void(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    batches = {T0: transactional(harness)}
    question = await other.answered(other.about(batches))
    end(harness)
    assert other.refused(batches, question) == {T0: ErrorCode.INVALID_TXN_STATE}


async def test_a_marker_of_another_producer_or_partition_changes_nothing(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    harness.lead(T1)
    batches = {T0: transactional(harness)}
    question = await other.answered(other.about(batches))
    append = harness.manager.markers.append
    append(T0, 8, 0, 0, True, lambda _: None)
    append(T1, 7, 0, 0, True, lambda _: None)
    assert other.refused(batches, question) == {}


async def test_an_answer_is_void_after_a_change_of_leaders(
    harness: ReplicaHarness, coordinator: Coordinator, other: OtherCoordinator
) -> None:
    """Another leader may have written the marker meanwhile. This broker's coordinator answers that it is not the one,
    so the producer tries again.
    """
    partition = harness.lead(replicas=(0, 1))
    batches = {T0: transactional(harness)}
    question = await other.answered(other.about(batches))
    partition.make_follower(later(partition, 1, (0, 1), (0, 1)))
    assert other.refused(batches, question) == {}, "the append reports that"
    partition.make_leader(later(partition, 0, (0, 1), (0, 1)))
    assert other.refused(batches, question) == {T0: ErrorCode.NOT_ENOUGH_REPLICAS}
    assert coordinator.asked == [("copier", 7, 0, T0)]


async def test_an_answer_is_void_for_a_topic_that_was_created_again(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    batches = {T0: transactional(harness)}
    question = await other.answered(other.about(batches))
    harness.manager.stop_replica(T0, delete=True)
    harness.lead()
    assert other.refused(batches, question) == {T0: ErrorCode.NOT_ENOUGH_REPLICAS}


async def test_a_batch_that_is_led_only_after_the_question_was_not_asked_about(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    batches = {T0: transactional(harness), T1: transactional(harness)}
    question = await other.answered(other.about(batches))
    harness.lead(T1)
    assert other.refused(batches, question) == {T1: ErrorCode.NOT_ENOUGH_REPLICAS}


async def test_an_open_transaction_needs_no_answer(harness: ReplicaHarness, other: OtherCoordinator) -> None:
    """Two connections of a producer have asked; the batch of one has begun the transaction in the partition."""
    harness.lead()
    first, second = {T0: transactional(harness)}, {T0: transactional(harness, 1)}
    begun, refused_one = other.about(first), other.about(second)
    await other.answered(begun)
    await other.answered(refused_one, ErrorCode.NETWORK_EXCEPTION)
    assert begun is not None
    assert refused_one is not None
    assert other.refused(first, begun) == {}
    harness.produce(first[T0])
    assert other.refused(second, refused_one) == {}


async def test_each_of_several_questions_about_a_producer_is_made_void_by_a_marker(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    batches = {T0: transactional(harness)}
    questions = [await other.answered(other.about(batches)) for _ in range(3)]
    other.verification.settle(questions[1])
    end(harness)
    assert other.refused(batches, questions[0]) == other.refused(batches, questions[2])
    assert other.refused(batches, questions[0]) == {T0: ErrorCode.INVALID_TXN_STATE}


async def test_settled_questions_are_forgotten(harness: ReplicaHarness, other: OtherCoordinator) -> None:
    harness.lead()
    harness.lead(T1)
    batches = {T0: transactional(harness), T1: transactional(harness)}
    questions = [await other.answered(other.about(batches)) for _ in range(2)]
    end(harness)
    for question in questions:
        other.verification.settle(question)
        other.verification.settle(question)
    assert other.verification._unsettled == {}


async def test_a_coordinator_elsewhere_is_asked_for_the_offsets_of_a_transaction(
    harness: ReplicaHarness, other: OtherCoordinator
) -> None:
    harness.lead()
    ask, verify = other.verification.needed_for_commit, other.verification.verify
    assert ask("of this broker", 7, 0, T0) is None
    assert ask("copier", 7, 0, T1) is None
    question = await other.answered(ask("copier", 7, 0, T0))
    assert verify("copier", 7, 0, T0, question) is ErrorCode.NONE
    end(harness)
    assert verify("copier", 7, 0, T0, question) is ErrorCode.INVALID_TXN_STATE
    harness.produce(transactional(harness))
    assert ask("copier", 7, 0, T0) is None


# Clients whose partitions are added

ADDS = ClientSupport.ADDS


class Adding:
    """This broker's coordinator. Answers at once with `code`, unless that is None: then the test does."""

    def __init__(self, harness: ReplicaHarness) -> None:
        self.verification = harness.manager.verification
        self.code: ErrorCode | None = ErrorCode.NONE
        self.asked: list[tuple[str, int, int, set[TopicPartition]]] = []
        self.waiting: list[Callable[[ErrorCode], object]] = []
        self.verification.ask_coordinators(
            Coordinator(), lambda name: OTHER if name == "elsewhere" else None, OtherCoordinator(harness).ask, self.add
        )

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Set[TopicPartition],
        answer: Callable[[ErrorCode], object],
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, set(partitions)))
        if self.code is None:
            self.waiting.append(answer)
        else:
            answer(self.code)

    def request(self, entries: dict[TopicPartition, bytes], name: str = "copier") -> VerificationRequest:
        found = self.verification.needed(name, entries, ADDS)
        assert found is not None
        return found

    def refused(
        self, entries: dict[TopicPartition, bytes], asked: VerificationRequest | None
    ) -> dict[TopicPartition, ErrorCode]:
        results = self.verification.refused("copier", entries, asked, ADDS)
        return {key: result.error for key, result in results.items()}


@pytest.fixture
def adding(harness: ReplicaHarness) -> Adding:
    return Adding(harness)


def test_this_brokers_coordinator_is_asked_to_add_the_partitions_that_a_batch_begins(
    harness: ReplicaHarness, adding: Adding
) -> None:
    harness.lead()
    harness.lead(T1)
    harness.produce(transactional(harness))
    batches = {T0: transactional(harness, 1), T1: transactional(harness)}
    asked = adding.request(batches)
    assert adding.verification.is_answered_here(asked)
    assert adding.asked == [("copier", 7, 0, {T1})]
    assert adding.refused(batches, asked) == {}
    adding.verification.settle(asked)
    harness.produce(transactional(harness), key=T1)
    assert adding.verification.needed("copier", {T0: transactional(harness, 2)}, ADDS) is None


def test_partitions_are_added_while_verification_is_switched_off(harness: ReplicaHarness, adding: Adding) -> None:
    harness.lead()
    harness.verifies_transactions = False
    batches = {T0: transactional(harness)}
    adding.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    asked = adding.request(batches)
    assert adding.verification.is_answered_here(asked)
    assert adding.refused(batches, asked) == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize(
    ("answer", "returned"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_errors_of_adding_are_mapped_except_for_a_busy_coordinator(
    harness: ReplicaHarness, adding: Adding, answer: ErrorCode, returned: ErrorCode
) -> None:
    harness.lead()
    batches = {T0: transactional(harness)}
    asked = adding.request(batches)
    adding.verification.answered(asked, {T0: answer})
    assert adding.refused(batches, asked) == {T0: returned}


@pytest.mark.parametrize("code", [None, ErrorCode.CONCURRENT_TRANSACTIONS])
def test_an_answer_that_follows_or_is_busy_is_none_yet(
    harness: ReplicaHarness, adding: Adding, code: ErrorCode | None
) -> None:
    harness.lead()
    adding.code = code
    asked = adding.request({T0: transactional(harness)})
    assert not adding.verification.is_answered_here(asked)
    assert asked.answers == {}
    elsewhere = adding.request({T0: transactional(harness)}, "elsewhere")
    assert not adding.verification.is_answered_here(elsewhere)
    assert len(adding.asked) == 1


@pytest.mark.parametrize(
    ("epoch", "version", "outcome"),
    [
        (5, 2, None),
        (6, 2, ErrorCode.INVALID_TXN_STATE),
        (5, 0, ErrorCode.INVALID_TXN_STATE),
        (5, 1, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_marker_of_the_transaction_before_makes_no_answer_void(
    harness: ReplicaHarness, adding: Adding, epoch: int, version: int, outcome: ErrorCode | None
) -> None:
    """The epoch of a marker of version 2 is that of the next transaction."""
    harness.lead()
    harness.produce(transactional(harness, epoch=4))
    batches = {T0: transactional(harness, epoch=5)}
    asked = adding.request(batches)
    assert adding.verification.is_answered_here(asked)
    adding.verification.marker_written(T0, 7, epoch, version)
    assert adding.refused(batches, asked) == ({} if outcome is None else {T0: outcome})


@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_before_the_answer_counts_as_one_after_it(
    harness: ReplicaHarness, adding: Adding, version: int
) -> None:
    harness.lead()
    batches = {T0: transactional(harness, epoch=5)}
    asked = adding.request(batches)
    adding.verification.marker_written(T0, 7, 5, version)
    assert adding.verification.is_answered_here(asked)
    assert adding.refused(batches, asked) == ({} if version else {T0: ErrorCode.INVALID_TXN_STATE})
    adding.verification.expect(asked)
    assert adding.verification.is_answered_here(asked), "the coordinator was asked again after the marker"
    assert adding.refused(batches, asked) == {}


def test_a_partition_that_was_not_added_is_added_by_the_next_attempt(harness: ReplicaHarness, adding: Adding) -> None:
    """This broker became its leader only after the coordinator was asked, say."""
    harness.lead()
    batches = {T0: transactional(harness)}
    assert adding.refused(batches, None) == {T0: ErrorCode.NOT_ENOUGH_REPLICAS}


def test_a_producer_begins_with_the_first_sequence(harness: ReplicaHarness, adding: Adding) -> None:
    harness.lead()
    batches = {T0: transactional(harness, 3)}
    asked = adding.request(batches)
    assert adding.verification.is_answered_here(asked)
    assert adding.refused(batches, asked) == {T0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert adding.verification.refused("copier", batches, asked, ClientSupport.KNOWS_ABORTABLE) == {}


@pytest.mark.parametrize(("epoch", "is_asked"), [(4, False), (5, False), (6, True)])
def test_the_coordinator_is_asked_about_a_newer_epoch_only(
    harness: ReplicaHarness, adding: Adding, epoch: int, is_asked: bool
) -> None:
    harness.lead()
    harness.produce(transactional(harness, epoch=5))
    asked = adding.verification.needed("copier", {T0: transactional(harness, epoch=epoch)}, ADDS)
    assert (asked is not None) is is_asked
    end_of(harness, 6)
    for epoch_now, is_asked_now in ((5, False), (6, True)):
        asked = adding.verification.needed("copier", {T0: transactional(harness, epoch=epoch_now)}, ADDS)
        assert (asked is not None) is is_asked_now


def end_of(harness: ReplicaHarness, epoch: int) -> None:
    harness.manager.markers.append(T0, 7, epoch, 0, True, lambda _: None, 2)
    harness.turn()


def test_a_partition_that_another_broker_leads_is_left_to_the_append(harness: ReplicaHarness, adding: Adding) -> None:
    """Its log here may lack what the producer has written before."""
    partition = harness.lead(replicas=(0, OTHER))
    partition.make_follower(later(partition, OTHER, (0, OTHER), (0, OTHER)))
    batches = {T0: transactional(harness, 3)}
    assert adding.verification.needed("copier", batches, ADDS) is None
    assert adding.refused(batches, None) == {}
    assert harness.produce(batches[T0]).result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("support", [ClientSupport.OLD, ADDS])
def test_a_batch_of_an_older_epoch_is_refused_before_the_log_is_asked(
    harness: ReplicaHarness, coordinator: Coordinator, support: ClientSupport
) -> None:
    """The answer to it does not have the log start offset."""
    harness.lead()
    harness.produce(transactional(harness, epoch=5))
    batches = {T0: transactional(harness, epoch=4)}
    (result,) = harness.manager.verification.refused("copier", batches, support=support).values()
    assert (result.error, result.log_start_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert coordinator.asked == []

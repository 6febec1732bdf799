"""Histories that break the invariants of producers and transactions, or nearly do."""

from __future__ import annotations

from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.protocol.batch_header import read_batch_header
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState, ReplicaLog, StoredBatch
from tests.simulation.history import Initialised, Outcome, Transaction
from tests.simulation.scenes import Scene
from tests.simulation.transaction_history import Differs, Identified, LateWrite, Logged, Unstable
from tests.simulation.transaction_invariants import (
    decisions_are_those_of_producers,
    epochs_grow_in_the_log,
    late_writes_are_refused,
    memory_is_what_the_log_says,
    nothing_is_open_below_the_last_stable_offset,
    producer_ids_are_unique,
)
from tests.simulation.violation import Check

PAYMENTS = TopicPartition("payments", 0)
LOG = TopicPartition("__transaction_state", 2)
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, COMPLETE_COMMIT = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
PREPARE_ABORT, COMPLETE_ABORT = TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT
State = tuple[TransactionState, int]


def texts(invariant: Check, scene: Scene, final: FinalState | None = None) -> list[str]:
    return [violation.text for violation in invariant(scene.history, final or FinalState())]


def late(text: str = "") -> LateWrite:
    return LateWrite(process="p", transactional_id="t", what="write after the end", partition=PAYMENTS, text=text)


def log_of(text: str) -> FinalState:
    content = build_batch([Record(offset=0, timestamp=0, key=None, value=text.encode())])
    header = read_batch_header(content)
    batch = StoredBatch(header.base_offset, header.last_offset, 0, content)
    return FinalState(logs={PAYMENTS: ReplicaLog(partition=PAYMENTS, broker_id=1, high_watermark=1, batches=[batch])})


def logged(*states: State, producer_id: int = 7, skips: bool = False, version: int = 0) -> Scene:
    scene = Scene()
    for offset, (state, epoch) in enumerate(states):
        scene.add(
            Logged(
                process="broker-1",
                partition=LOG,
                offset=offset,
                transactional_id="t",
                state=state,
                producer_id=producer_id,
                producer_epoch=epoch,
                client_version=version,
                skips=skips,
            )
        )
    return scene


def test_a_late_write_is_refused() -> None:
    scene = Scene()
    scene.add(late(), Outcome.FAILED)
    assert texts(late_writes_are_refused, scene) == []
    scene.add(late())
    assert texts(late_writes_are_refused, scene) == ["p was allowed to write after the end"]
    scene = Scene()
    scene.add(late("p:1"))
    assert texts(late_writes_are_refused, scene) == ["p:1 was accepted in payments-0: write after the end"]


def test_a_late_write_without_an_answer_is_not_in_the_log() -> None:
    scene = Scene()
    scene.add(late("p:1"), Outcome.UNKNOWN)
    assert texts(late_writes_are_refused, scene, log_of("p:2")) == []
    assert texts(late_writes_are_refused, scene, log_of("p:1")) == ["p:1 is in the log of payments-0"]


def test_a_producer_id_belongs_to_one_producer_or_transactional_id() -> None:
    scene = Scene()
    for _ in range(2):
        scene.add(Initialised(process="p", transactional_id="t", producer_id=1))
    scene.add(Identified(process="q", producer_id=2))
    scene.add(Identified(process="q", producer_id=2), Outcome.UNKNOWN)
    assert texts(producer_ids_are_unique, scene) == []
    scene.add(Identified(process="q", producer_id=1))
    assert texts(producer_ids_are_unique, scene) == ["producer id 1 was given twice"]


def test_states_follow_each_other_in_the_log() -> None:
    whole = ((EMPTY, 0), (ONGOING, 0), (ONGOING, 0), (PREPARE_ABORT, 1), (COMPLETE_ABORT, 1), (EMPTY, 2))
    assert texts(epochs_grow_in_the_log, logged(*whole)) == []
    assert len(texts(epochs_grow_in_the_log, logged((EMPTY, 0), (PREPARE_COMMIT, 0)))) == 1
    assert len(texts(epochs_grow_in_the_log, logged((ONGOING, 0), (COMPLETE_COMMIT, 0)))) == 1
    assert texts(epochs_grow_in_the_log, logged((ONGOING, 0), (COMPLETE_COMMIT, 0), skips=True)) == []


def test_transactions_of_version_2_raise_the_epoch() -> None:
    whole = ((EMPTY, 0), (ONGOING, 0), (PREPARE_COMMIT, 1), (COMPLETE_COMMIT, 1), (ONGOING, 1), (PREPARE_ABORT, 2))
    assert texts(epochs_grow_in_the_log, logged(*whole, version=2)) == []
    (text,) = texts(epochs_grow_in_the_log, logged((ONGOING, 1), (PREPARE_COMMIT, 1), version=2))
    assert text.endswith("and has not raised the epoch 1")
    assert texts(epochs_grow_in_the_log, logged((ONGOING, 1), (PREPARE_COMMIT, 1))) == []


def test_a_transaction_of_version_2_without_anything_in_it_may_be_aborted() -> None:
    for state in EMPTY, COMPLETE_ABORT, COMPLETE_COMMIT:
        assert texts(epochs_grow_in_the_log, logged((state, 0), (PREPARE_ABORT, 1), version=2)) == []
        assert len(texts(epochs_grow_in_the_log, logged((state, 0), (PREPARE_ABORT, 1)))) == 1
        assert len(texts(epochs_grow_in_the_log, logged((state, 0), (PREPARE_COMMIT, 1), version=2))) == 1


def test_what_was_compacted_may_have_been_of_any_id() -> None:
    """The log has lost records at 1 and 2."""
    for epoch, violations in ((1, 0), (0, 1)):
        scene = logged((ONGOING, 1))
        scene.add(Logged(process="broker-1", partition=LOG, offset=3, transactional_id="u", state=ONGOING, skips=True))
        scene.add(
            Logged(
                process="broker-1",
                partition=LOG,
                offset=4,
                transactional_id="t",
                state=COMPLETE_COMMIT,
                producer_id=7,
                producer_epoch=epoch,
            )
        )
        assert len(texts(epochs_grow_in_the_log, scene)) == violations


def test_a_decision_that_failed_may_be_followed_by_another_one() -> None:
    assert texts(epochs_grow_in_the_log, logged((ONGOING, 0), (PREPARE_COMMIT, 0), (PREPARE_ABORT, 1))) == []
    assert texts(epochs_grow_in_the_log, logged((ONGOING, 0), *[(PREPARE_ABORT, 1)] * 5, (COMPLETE_ABORT, 1))) == []


def test_an_epoch_never_falls_and_grows_with_a_new_producer() -> None:
    assert len(texts(epochs_grow_in_the_log, logged((EMPTY, 3), (ONGOING, 2)))) == 1
    assert len(texts(epochs_grow_in_the_log, logged((COMPLETE_COMMIT, 3), (EMPTY, 3)))) == 1


def test_an_id_begins_anew_when_it_was_deleted() -> None:
    scene = logged((COMPLETE_COMMIT, 3))
    scene.add(Logged(process="broker-1", partition=LOG, offset=1, transactional_id="t", state=None))
    for operation in logged((EMPTY, 0), (ONGOING, 0), producer_id=8).history.operations:
        scene.add(operation)
    assert texts(epochs_grow_in_the_log, scene) == []


def asked(scene: Scene, *, commits: bool, epoch: int) -> None:
    transaction = scene.begin(Transaction(process="p", transactional_id="t", number=1, commits=commits))
    transaction.producer_id, transaction.producer_epoch, transaction.end_asked_us = 7, epoch, 0


def test_a_decision_is_what_the_producer_has_asked_for() -> None:
    committed = logged((ONGOING, 0), (PREPARE_COMMIT, 0))
    assert len(texts(decisions_are_those_of_producers, committed)) == 1
    asked(committed, commits=False, epoch=0)
    assert len(texts(decisions_are_those_of_producers, committed)) == 1
    asked(committed, commits=True, epoch=0)
    assert texts(decisions_are_those_of_producers, committed) == []


def test_who_has_not_asked_for_an_abort_is_fenced() -> None:
    assert texts(decisions_are_those_of_producers, logged((ONGOING, 0), (PREPARE_ABORT, 1))) == []
    unfenced = logged((ONGOING, 0), (PREPARE_ABORT, 0))
    assert len(texts(decisions_are_those_of_producers, unfenced)) == 1
    asked(unfenced, commits=False, epoch=0)
    assert texts(decisions_are_those_of_producers, unfenced) == []


def test_what_is_seen_is_a_violation() -> None:
    scene = Scene()
    scene.add(Unstable(process="broker-1", partition=PAYMENTS, last_stable_offset=5, first_open=3))
    scene.add(
        Differs(process="broker-1", partition=LOG, what="t", in_memory="Empty", in_log="Ongoing", was_loaded=True)
    )
    assert len(texts(nothing_is_open_below_the_last_stable_offset, scene)) == 1
    assert len(texts(memory_is_what_the_log_says, scene)) == 1

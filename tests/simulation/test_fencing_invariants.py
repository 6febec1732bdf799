"""The invariants of those who were replaced: each finds a history that breaks it, and accepts the nearest one that does
not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.fencing_invariants import earlier_generations_are_refused, earlier_producers_are_fenced
from tests.simulation.final_state import FinalState
from tests.simulation.history import Commit, Initialised, Outcome, Send, Synced, Transaction
from tests.simulation.scenes import Scene

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
P = TopicPartition("payments", 0)


class FencingScene(Scene):
    def initialised(self, process: str, epoch: int, producer_id: int = 7) -> None:
        self.end(self.begin(asking(process, epoch, producer_id)))

    def transaction(self, process: str) -> Transaction:
        transaction = Transaction(process=process, transactional_id="t", number=1)
        self.begin(transaction)
        return transaction

    def send(self, transaction: Transaction, outcome: Outcome) -> None:
        send = Send(process=transaction.process, partition=P, records=("t:1",), transaction=transaction)
        self.end(self.begin(send), outcome)

    def ask_for_end(self, transaction: Transaction) -> None:
        self.now_us += 1
        transaction.end_asked_us = self.now_us

    def synced(self, generation: int) -> None:
        self.history.note(Synced(process="member-1", group="g", generation=generation))

    def commit(self, generation: int, outcome: Outcome) -> None:
        commit = Commit(process="member-2", group="g", offsets={P: 5}, generation=generation)
        self.end(self.begin(commit), outcome)

    def fenced(self) -> list[str]:
        return [each.invariant for each in earlier_producers_are_fenced(self.history, FinalState())]

    def generations(self) -> list[str]:
        return [each.invariant for each in earlier_generations_are_refused(self.history, FinalState())]


def asking(process: str, epoch: int, producer_id: int = 7) -> Initialised:
    return Initialised(process=process, transactional_id="t", producer_id=producer_id, producer_epoch=epoch)


@pytest.fixture
def scene() -> FencingScene:
    return FencingScene()


# --- fenced


def test_an_epoch_that_does_not_grow_is_found(scene: FencingScene) -> None:
    scene.initialised("a", 3)
    scene.initialised("b", 4)
    assert scene.fenced() == []
    scene.initialised("a", 4)
    assert scene.fenced() == ["fenced"]


def test_an_epoch_of_another_producer_id_may_be_smaller(scene: FencingScene) -> None:
    scene.initialised("a", 3)
    scene.initialised("b", 0, producer_id=8)
    assert scene.fenced() == []


def test_answers_may_overtake_each_other_but_not_be_the_same(scene: FencingScene) -> None:
    first, second = scene.begin(asking("a", 4)), scene.begin(asking("b", 3))
    scene.end(first)
    scene.end(second)
    assert scene.fenced() == []
    scene.initialised("c", 5)
    third, fourth = scene.begin(asking("a", 6)), scene.begin(asking("b", 6))
    scene.end(third)
    scene.end(fourth)
    assert scene.fenced() == ["fenced"]


@pytest.mark.parametrize(("outcome", "found"), [(FAILED, []), (UNKNOWN, []), (OK, ["fenced"])])
def test_a_record_of_a_replaced_producer_is_found(scene: FencingScene, outcome: Outcome, found: list[str]) -> None:
    scene.initialised("a", 3)
    transaction = scene.transaction("a")
    scene.send(transaction, OK)
    scene.initialised("b", 4)
    scene.send(transaction, outcome)
    assert scene.fenced() == found


@pytest.mark.parametrize("comes_first", [FencingScene.ask_for_end, None])
def test_the_end_of_a_replaced_transaction_is_found(
    scene: FencingScene, comes_first: Callable[[FencingScene, Transaction], None] | None
) -> None:
    """What was asked for before may be answered later."""
    scene.initialised("a", 3)
    transaction = scene.transaction("a")
    if comes_first is not None:
        comes_first(scene, transaction)
    scene.initialised("b", 4)
    if comes_first is None:
        scene.ask_for_end(transaction)
    scene.end(transaction)
    assert scene.fenced() == ([] if comes_first else ["fenced"])


def test_a_producer_that_begins_anew_is_not_replaced_any_more(scene: FencingScene) -> None:
    scene.initialised("a", 3)
    scene.initialised("b", 4)
    scene.initialised("a", 5)
    transaction = scene.transaction("a")
    scene.send(transaction, OK)
    scene.ask_for_end(transaction)
    scene.end(transaction)
    assert scene.fenced() == []


# --- generations


def test_a_commit_in_an_earlier_generation_is_found(scene: FencingScene) -> None:
    scene.synced(1)
    scene.commit(1, OK)
    scene.synced(2)
    scene.commit(1, FAILED)
    scene.commit(1, UNKNOWN)
    scene.commit(2, OK)
    assert scene.generations() == []
    scene.commit(1, OK)
    assert scene.generations() == ["generations"]


def test_a_commit_that_was_sent_before_the_next_generation_may_count(scene: FencingScene) -> None:
    scene.synced(1)
    commit = scene.begin(Commit(process="member-2", group="g", offsets={P: 5}, generation=1))
    scene.synced(2)
    scene.end(commit)
    assert scene.generations() == []


def test_a_commit_within_a_transaction_has_no_generation(scene: FencingScene) -> None:
    scene.synced(2)
    scene.commit(-1, OK)
    assert scene.generations() == []


def test_a_group_may_go_back_to_an_earlier_generation(scene: FencingScene) -> None:
    scene.synced(3)
    scene.synced(4)
    scene.synced(3)
    scene.commit(3, OK)
    assert scene.generations() == []
    scene.commit(2, OK)
    assert scene.generations() == ["generations"]

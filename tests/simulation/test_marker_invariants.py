"""The invariant of markers finds a log that breaks it, and accepts the nearest one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.protocol.batch_contents import build_batch, build_end_transaction_marker
from odradek.protocol.records import ControlType, Record
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState, ReplicaLog, StoredBatch
from tests.simulation.history import Send, Transaction
from tests.simulation.marker_invariants import markers_end_transactions, records_of_former_epochs_are_refused
from tests.simulation.scenes import Scene

P = TopicPartition("payments", 0)


class MarkerScene(Scene):
    """A producer sends a record in each of two transactions, a second producer in a third one."""

    def __init__(self) -> None:
        super().__init__()
        for text, transactional_id, number in (("a", "t", 1), ("b", "t", 2), ("c", "u", 1)):
            transaction = Transaction(process="p", transactional_id=transactional_id, number=number)
            self.add(transaction)
            self.add(Send(process="p", partition=P, records=(text,), transaction=transaction))

    def ended(self, *batches: bytes) -> Sequence[str]:
        return [each.invariant for each in markers_end_transactions(self.history, log_of(*batches))]


def log_of(*batches: bytes) -> FinalState:
    stored = [StoredBatch(offset, offset, 0, content) for offset, content in enumerate(batches)]
    return FinalState(logs={P: ReplicaLog(partition=P, broker_id=1, high_watermark=len(stored), batches=stored)})


def records(text: str, producer_id: int = 7, epoch: int = 0) -> bytes:
    record = Record(offset=0, value=text.encode())
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, is_transactional=True)


def marker(producer_id: int = 7, epoch: int = 0) -> bytes:
    return build_end_transaction_marker(
        ControlType.COMMIT, timestamp=0, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0
    )


@pytest.fixture
def scene() -> MarkerScene:
    return MarkerScene()


def test_a_transaction_without_a_marker_is_found(scene: MarkerScene) -> None:
    assert scene.ended(records("a"), marker(), records("b"), marker()) == []
    assert scene.ended(records("a"), records("b"), marker()) == ["ended"]


def test_a_marker_ends_only_its_own_producers_transaction(scene: MarkerScene) -> None:
    assert scene.ended(records("a"), marker(8), records("b"), marker()) == ["ended"]
    assert scene.ended(records("a"), records("c", 8), marker(), records("b"), marker(8)) == []


def test_a_transaction_may_have_several_batches_and_be_open_in_the_end(scene: MarkerScene) -> None:
    assert scene.ended(records("a"), records("a")) == []


@pytest.mark.parametrize(
    ("batches", "is_wrong"),
    [
        ((records("a"), marker(epoch=1), records("b", epoch=1)), False),
        ((records("a"), marker(), records("b")), False),
        ((records("a"), marker(epoch=1), records("b")), True),
        ((records("a"), marker(8, epoch=1), records("b")), False),
        ((records("a"), marker(epoch=2), marker(epoch=1), records("b", epoch=1)), True),
    ],
)
def test_a_record_in_an_epoch_before_a_marker(scene: MarkerScene, batches: Sequence[bytes], is_wrong: bool) -> None:
    found = [each.invariant for each in records_of_former_epochs_are_refused(scene.history, log_of(*batches))]
    assert found == (["former epochs"] if is_wrong else [])

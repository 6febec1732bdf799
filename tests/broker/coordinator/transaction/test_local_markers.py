"""Markers for this broker's own logs: a transaction of many partitions does not block others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinator.transaction.local_markers import MARKERS_PER_TURN, LocalMarkerWriter
from odradek.broker.coordinator.transaction.marker_writing import Marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition


class Logs:
    """Records the producers of written markers in order. A test runs the event loop's next turn by hand."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.breaks_for = -1
        self.answered: list[TopicPartition] = []
        self.soon: list[Callable[[], None]] = []
        self.writer = LocalMarkerWriter(self.append, self.soon.append)

    def append(self, topic_partition: TopicPartition, producer_id: int, *more: Any) -> None:
        self.written.append(producer_id)
        if producer_id == self.breaks_for:
            raise RuntimeError("no")
        more[-2](ErrorCode.NONE)

    def write(self, producer_id: int, partitions: int) -> None:
        keys = tuple(TopicPartition("t", number) for number in range(partitions))
        self.writer.write(Marker(producer_id, 0, 0, True, keys), lambda key, code: self.answered.append(key))

    def turn(self) -> None:
        due, self.soon[:] = list(self.soon), []
        for call in due:
            call()


def test_markers_are_written_in_the_next_turn_after_the_end_txn_response() -> None:
    logs = Logs()
    logs.write(1, 3)
    assert logs.written == []
    logs.turn()
    assert logs.written == [1, 1, 1]
    assert [key.partition for key in logs.answered] == [0, 1, 2]
    assert not logs.soon


def test_a_marker_that_raises_does_not_keep_the_others_from_being_written() -> None:
    logs = Logs()
    logs.breaks_for = 2
    logs.write(1, 2)
    logs.write(2, 1)
    logs.write(3, 2)
    with pytest.raises(RuntimeError, match="no"):
        logs.turn()
    while logs.soon:
        logs.turn()
    assert sorted(logs.written) == [1, 1, 2, 3, 3]


def test_many_markers_are_written_a_few_per_turn() -> None:
    logs = Logs()
    logs.write(1, 3 * MARKERS_PER_TURN)
    logs.turn()
    assert len(logs.written) == MARKERS_PER_TURN
    logs.turn()
    assert len(logs.written) == 2 * MARKERS_PER_TURN
    while logs.soon:
        logs.turn()
    assert [key.partition for key in logs.answered] == list(range(3 * MARKERS_PER_TURN))


def test_a_small_transaction_does_not_wait_for_a_large_one() -> None:
    logs = Logs()
    logs.write(1, 1000)
    logs.turn()
    logs.write(2, 2)
    assert 2 not in logs.written
    logs.turn()
    assert logs.written.count(2) == 2


def test_many_small_transactions_take_several_turns() -> None:
    logs = Logs()
    for producer_id in range(3 * MARKERS_PER_TURN):
        logs.write(producer_id, 1)
    logs.turn()
    assert len(logs.written) == MARKERS_PER_TURN
    while logs.soon:
        logs.turn()
    assert logs.written == list(range(3 * MARKERS_PER_TURN))

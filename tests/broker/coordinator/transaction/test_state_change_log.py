"""State changes are logged after the response, in order, each once."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek.broker.coordinator.transaction.state_change_log import StateChangeLog
from odradek.broker.coordinator.transaction.transaction import NO_PARTITIONS, Transit
from odradek.broker.coordinator.transaction.transaction_state import EMPTY, ONGOING, PREPARE_COMMIT, TransactionState


def to(state: TransactionState) -> Transit:
    return Transit(state, 7, -1, 2, -1, 60_000, NO_PARTITIONS, 1, 2)


def test_state_changes_are_logged_once_in_the_next_event_loop_turn() -> None:
    soon: list[Callable[[], None]] = []
    changes = StateChangeLog(soon.append)
    with structlog.testing.capture_logs() as lines:
        changes.note("t", EMPTY, to(ONGOING), "AddPartitionsToTxn")
        changes.note("u", ONGOING, to(PREPARE_COMMIT), "EndTxn")
        assert lines == []
        (turn,) = soon
        turn()
        assert [(line["transactional_id"], line["old"], line["new"]) for line in lines] == [
            ("t", "Empty", "Ongoing"),
            ("u", "Ongoing", "PrepareCommit"),
        ]
        changes.note("t", ONGOING, to(PREPARE_COMMIT), "EndTxn")
        soon[1]()
    assert len(lines) == 3
    assert len(soon) == 2

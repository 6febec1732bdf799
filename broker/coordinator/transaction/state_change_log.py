"""Logs each state change of a transactional id.

Logging a change costs a fifth of the request that causes it, so it is deferred until the response has been sent.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from odradek.broker.background.tasks import Soon
from odradek.broker.coordinator.transaction.transaction import Transit
from odradek.broker.coordinator.transaction.transaction_state import ONGOING, TransactionState

log = structlog.get_logger("coordinator.transaction")


class StateChange(NamedTuple):
    """An applied transit, the state before it, and its reason."""

    transactional_id: str
    old: TransactionState
    new: Transit
    reason: str


class StateChangeLog:
    """Logs state changes of transactions in the next iteration of the event loop."""

    def __init__(self, soon: Soon) -> None:
        self._soon = soon
        self._pending: list[StateChange] = []

    def note(self, transactional_id: str, old: TransactionState, new: Transit, reason: str) -> None:
        self._pending.append(StateChange(transactional_id, old, new, reason))
        if len(self._pending) == 1:
            self._soon(self._log_pending)

    def _log_pending(self) -> None:
        pending, self._pending = self._pending, []
        for transactional_id, old, new, reason in pending:
            if old == new.state == ONGOING:
                count = len(new.partitions)
                log.debug("partitions added to transaction", transactional_id=transactional_id, partitions=count)
                continue
            log.info(
                "transaction state changed",
                transactional_id=transactional_id,
                producer_id=new.producer_id,
                producer_epoch=new.producer_epoch,
                old=old.label,
                new=new.state.label,
                reason=reason,
            )

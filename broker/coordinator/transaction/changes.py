"""The line in the log for each change of a transactional id's state.

A line costs a fifth of the request that it tells of, and is written when that request's answer is on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import structlog

from odradek.broker.coordinator.transaction.state import ONGOING, TransactionState
from odradek.broker.coordinator.transaction.transaction import Transit

log = structlog.get_logger("coordinator.transaction")

Soon = Callable[[Callable[[], None]], object]
"""soon(call): calls it in the loop's next turn."""


class Change(NamedTuple):
    """A transit that was taken over: the state before it, and why it was made."""

    transactional_id: str
    old: TransactionState
    new: Transit
    reason: str


class Changes:
    """Those that are not told yet."""

    def __init__(self, soon: Soon) -> None:
        self._soon = soon
        self._untold: list[Change] = []

    def note(self, transactional_id: str, old: TransactionState, new: Transit, reason: str) -> None:
        self._untold.append(Change(transactional_id, old, new, reason))
        if len(self._untold) == 1:
            self._soon(self._tell)

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for transactional_id, old, new, reason in untold:
            if old == new.state == ONGOING:
                count = len(new.partitions)
                log.debug("transaction has more partitions", transactional_id=transactional_id, partitions=count)
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

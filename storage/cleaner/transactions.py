"""The state of transactions during a clean (Kafka's CleanedTransactionMetadata).

(A) Data of an aborted transaction is removed, whatever its keys.
(B) A marker may be removed if the clean has found no data of its transaction: an earlier clean has removed it. The
    marker then gets a delete horizon like a tombstone, and is removed when that has passed.
(C) The marker of an aborted transaction that had data keeps its entry in the transaction index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.control_records import ControlType
from odradek.storage.segment.transaction_index import AbortedTransaction


class _Aborted:
    __slots__ = ("has_data", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_data = False


class CleanedTransactions:
    """`note_aborted` receives the entries that (C) keeps. Batches must be passed in the order of their offsets."""

    __slots__ = ("_aborted", "_committed", "_ongoing", "note_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._ongoing: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.note_aborted: Callable[[AbortedTransaction], None] | None = None

    def data_batch(self, header: BatchHeader) -> bool:
        """Whether the batch's records belong to an aborted transaction. (A)"""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        aborted = self._ongoing.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.has_data = True
        return True

    def marker(self, header: BatchHeader, control_type: ControlType | None) -> bool:
        """Whether the control batch may be removed (B). A `control_type` of None means an empty batch."""
        self._begin_up_to(header.last_offset)
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            aborted = self._ongoing.pop(header.producer_id, None)
            if aborted is None or not aborted.has_data:
                return True
            if self.note_aborted is not None:
                self.note_aborted(aborted.transaction)
            return False
        if control_type is ControlType.COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.remove(header.producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._aborted
        while waiting and waiting[-1].first_offset <= offset:
            transaction = waiting.pop()
            self._ongoing.setdefault(transaction.producer_id, _Aborted(transaction))

"""The invariant of markers, which judges logs.

former epochs   After a marker of a producer there is no record of it in an earlier epoch than the marker's.
ended           In each partition a marker ends a transaction before its producer's next one begins. Without it the
                next marker would decide both: often the same way, so that no consumer would see the harm.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.protocol.records import read_batch_header
from tests.simulation.final_state import FinalState, ReplicaLog, texts_of
from tests.simulation.history import History, Send, Transaction
from tests.simulation.violation import Violation


def records_of_former_epochs_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """former epochs"""
    for log in final.logs.values():
        marked: dict[int, int] = {}
        for batch in log.batches:
            header = read_batch_header(batch.content)
            if header.is_control:
                marked[header.producer_id] = max(header.producer_epoch, marked.get(header.producer_id, -1))
            elif header.is_transactional and header.producer_epoch < marked.get(header.producer_id, -1):
                where = f"the batch at {header.base_offset} of {log.partition} has epoch {header.producer_epoch}"
                yield Violation("former epochs", f"{where}, behind a marker of epoch {marked[header.producer_id]}")


def markers_end_transactions(history: History, final: FinalState) -> Iterator[Violation]:
    """ended"""
    transactions = {
        text: send.transaction for send in history.of(Send) if send.transaction is not None for text in send.records
    }
    for log in final.logs.values():
        yield from _ended(log, transactions)


def _ended(log: ReplicaLog, transactions: dict[str, Transaction]) -> Iterator[Violation]:
    open_: dict[int, Transaction] = {}
    for batch in log.batches:
        header = read_batch_header(batch.content)
        if header.is_control:
            open_.pop(header.producer_id, None)
            continue
        for offset, text in texts_of(batch.content):
            transaction = transactions.get(text)
            if transaction is None:
                continue
            before = open_.setdefault(header.producer_id, transaction)
            if before is not transaction:
                yield Violation(
                    "ended",
                    f"{text} at {offset} of {log.partition}, and no marker since {before}",
                    (before, transaction),
                )
                return

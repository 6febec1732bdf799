"""The invariants of deleted records.

retained    Only retention and requests delete records, and no more than they may: not above the high watermark,
            nothing that is neither too old nor too much, nothing after the offset of a request. No consumer skips more.
            The logs of all other topics start at 0.
removed     In the end no replica starts before its leader does. A confirmed request has moved the start of all
            replicas.

What is above the log's start is kept: see `kept` and `complete`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome
from tests.simulation.retention_history import Deletion, Retained, Skipped
from tests.simulation.violation import Violation


def only_what_may_go_is_deleted(history: History, final: FinalState) -> Iterator[Violation]:
    """retained"""
    allowed: dict[TopicPartition, int] = defaultdict(int)
    for retained in history.of(Retained):
        if retained.reason:
            yield Violation("retained", f"{retained.process} {retained.describe()}", (retained,))
        allowed[retained.partition] = max(allowed[retained.partition], retained.start_offset)
    ends = {replica.partition: replica.high_watermark for replica in final.replicas}
    for deletion in history.of(Deletion):
        if deletion.outcome is not Outcome.FAILED:
            before = deletion.before
            if before < 0:
                before = deletion.low_watermark if deletion.outcome is Outcome.OK else ends.get(deletion.partition, 0)
            allowed[deletion.partition] = max(allowed[deletion.partition], before)
    for skipped in history.of(Skipped):
        if skipped.start_offset > allowed[skipped.partition]:
            text = f"{skipped.process} {skipped.describe()}, only {allowed[skipped.partition]} were deleted"
            yield Violation("retained", text, (skipped,))
    for replica in final.replicas:
        start, end = replica.log_start_offset, allowed[replica.partition]
        if start > end:
            text = f"{replica.partition} on broker {replica.broker_id} starts at {start}, only {end} were deleted"
            yield Violation("retained", text)


def what_is_deleted_is_deleted_everywhere(history: History, final: FinalState) -> Iterator[Violation]:
    """removed"""
    for deletion in history.of(Deletion):
        if deletion.outcome is Outcome.OK and deletion.low_watermark < deletion.before:
            yield Violation("removed", f"confirmed too early: {deletion.describe()}", (deletion,))
    for replica in final.replicas:
        leader = final.logs.get(replica.partition)
        if leader is not None and replica.log_start_offset < leader.log_start_offset:
            text = f"{replica.partition} starts at {replica.log_start_offset} on broker {replica.broker_id}"
            yield Violation("removed", f"{text}, and at {leader.log_start_offset} on its leader {leader.broker_id}")

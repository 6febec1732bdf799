"""The invariants of what administrators change.

    topics          A topic whose creation was confirmed is known to every broker and the store, with at least as many
                    partitions as were confirmed and at most as many as were asked for, unless somebody asked for its
                    deletion. One whose deletion was confirmed is nowhere. Nothing is left of a topic that is not there:
                    no settings, no mark of deletion, no folder on a disk.
    reassignments   None is under way in the end. The replicas of a partition are those of the last confirmed request,
                    the store and all brokers agree on them, and no other broker has a replica, or a folder of it.

An operation without an answer may have had its effect, or have it up to LATE_US later. A cancellation restores what was
there before, which is any of the sets asked for since the last reassignment that was seen to end.

A folder may stay where a replica was, as in Kafka: if the broker was lost when its replica was removed; or if the
replica was removed by a cancellation, or by a reassignment that another one replaced or was replaced by, and the
controller lost its office before the broker had answered. The store does not have what was to be removed any more then.
If the controller cannot reach the broker, that may be some time after the change was seen. A folder stays, too, that
the broker could not rename when its replica was removed by a reassignment, because the disk failed: nobody asks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState, Folder, StoredMetadata
from tests.simulation.history import Elected, History, Kind, Operation, Outcome, Reassignment, Registered, TopicChange
from tests.simulation.violation import Violation

LATE_US = 15_000_000
LONGEST_CUT_US = 5_000_000
"""A request to a broker that cannot be reached may wait for so long after its change was seen."""

Replicas = Mapping[TopicPartition, tuple[int, ...]]
Reassignments = Mapping[TopicPartition, Sequence[Reassignment]]


def topics_are_as_confirmed(history: History, final: FinalState) -> Iterator[Violation]:
    """topics"""
    changes: dict[str, list[TopicChange]] = {}
    for change in history.of(TopicChange):
        if change.outcome is not Outcome.FAILED:
            changes.setdefault(change.topic, []).append(change)
    for topic, of_topic in changes.items():
        for where, partitions in _sizes(topic, final):
            yield from _life(topic, of_topic, where, partitions)
    if final.metadata is not None:
        yield from _leftovers(history, final.metadata, final)


def _sizes(topic: str, final: FinalState) -> Iterator[tuple[str, int]]:
    """How many partitions each broker and the store know of a topic."""
    for view in final.views:
        yield f"broker {view.broker_id}", sum(key.topic == topic for key in view.partitions)
    if final.metadata is not None:
        stored = final.metadata.topics.get(topic)
        yield "the store", 0 if stored is None else len(stored.replicas)


def _life(topic: str, changes: Sequence[TopicChange], where: str, partitions: int) -> Iterator[Violation]:
    """Judges a topic by what may have been done to it, in order."""
    deletions = [change for change in changes if change.kind is Kind.DELETE]
    last = changes[-1]
    if last.kind is Kind.DELETE and last.outcome is Outcome.OK and not _may_be_created_late(changes):
        if partitions:
            yield Violation("topics", f"{topic} was deleted, and {where} has {partitions} partitions of it", (last,))
        return
    most = max(change.partitions for change in changes)
    if partitions > most:
        yield Violation("topics", f"{where} has {partitions} partitions of {topic}; {most} were asked for", (last,))
    begun = max((n for n, change in enumerate(changes) if _is_confirmed(change, Kind.CREATE)), default=None)
    if begun is None or any(_may_count(deletion, changes[begun]) for deletion in deletions):
        return
    for change in changes[begun:]:
        if change.outcome is Outcome.OK and partitions < change.partitions:
            text = f"{topic} was given {change.partitions} partitions, and {where} has {partitions}"
            yield Violation("topics", text, (change,))
            return


def _is_confirmed(change: TopicChange, kind: Kind) -> bool:
    return change.kind is kind and change.outcome is Outcome.OK


def _may_be_created_late(changes: Sequence[TopicChange]) -> bool:
    """Whether a creation without an answer may come after the deletion. The first one has come before, because there
    was something to delete."""
    return any(change.kind is Kind.CREATE and change.outcome is not Outcome.OK for change in changes[1:])


def _may_count(change: Operation, since: Operation) -> bool:
    """Whether an operation may have its effect after another has begun."""
    until_us = change.ended_us if change.outcome is Outcome.OK else change.invoked_us + LATE_US
    return max(change.invoked_us, until_us) >= since.invoked_us


def _leftovers(history: History, stored: StoredMetadata, final: FinalState) -> Iterator[Violation]:
    for name in stored.deletions:
        yield Violation("topics", f"the store still has a mark of deletion of {name}")
    for name in stored.configs:
        if name not in stored.topics:
            yield Violation("topics", f"the store has settings of {name}, which is not there")
    reassignments = _reassignments(history)
    for folder in final.folders:
        topic = stored.topics.get(folder.partition.topic)
        if _may_stay(history, reassignments, folder):
            continue
        of_partition = f"broker {folder.broker_id} has a folder of {folder.partition}"
        if topic is None:
            yield Violation("topics", f"{of_partition}, whose topic is not there")
        elif None not in (folder.topic_id, topic.topic_id) and folder.topic_id != topic.topic_id:
            yield Violation("topics", f"{of_partition} of an earlier topic of this name")


# --- reassignments ------------------------------------------------------------------------------------------------


def replicas_are_as_reassigned(history: History, final: FinalState) -> Iterator[Violation]:
    """reassignments"""
    if final.metadata is None:
        return
    for name, topic in final.metadata.topics.items():
        for number in topic.reassigning:
            yield Violation("reassignments", f"{name}-{number} is still being reassigned")
    replicas = {
        TopicPartition(name, number): brokers
        for name, topic in final.metadata.topics.items()
        for number, brokers in topic.replicas.items()
    }
    yield from _disagreements(final, replicas)
    yield from _unwanted(history, replicas)
    yield from _strays(history, final, replicas)


def _reassignments(history: History) -> Reassignments:
    """Those that may have had an effect, by partition."""
    found: dict[TopicPartition, list[Reassignment]] = {}
    for operation in history.of(Reassignment):
        if operation.outcome is not Outcome.FAILED:
            found.setdefault(operation.partition, []).append(operation)
    return found


def _disagreements(final: FinalState, replicas: Replicas) -> Iterator[Violation]:
    for view in final.views:
        for key, state in view.partitions.items():
            if key in replicas and replicas[key] != state.replicas:
                known = f"broker {view.broker_id} knows the replicas {state.replicas} of {key}"
                yield Violation("reassignments", f"{known}, the store has {replicas[key]}")
    for replica in final.replicas:
        if replica.broker_id not in replicas.get(replica.partition, (replica.broker_id,)):
            text = f"broker {replica.broker_id} has a replica of {replica.partition}, and is none of its brokers"
            yield Violation("reassignments", text)


def _unwanted(history: History, replicas: Replicas) -> Iterator[Violation]:
    doomed = {change.topic for change in history.of(TopicChange) if change.kind is Kind.DELETE}
    for key, operations in _reassignments(history).items():
        allowed = None if key.topic in doomed else _possible(operations)
        if key in replicas and allowed is not None and sorted(replicas[key]) not in map(sorted, allowed):
            text = f"the replicas of {key} are {replicas[key]}, which is none of {allowed}"
            yield Violation("reassignments", text, tuple(operations[-3:]))


def _possible(operations: Sequence[Reassignment]) -> list[tuple[int, ...]] | None:
    """The replicas that a partition may have after these operations. None: any, it may have those of its creation."""
    found: list[tuple[int, ...]] = []
    for index in reversed(range(len(operations))):
        operation, after = operations[index], operations[index + 1 :]
        if operation.replicas is not None and not _is_cancelled(operation, after):
            found.append(operation.replicas)
        if _is_settled(operation, after):
            late = [each.replicas for each in operations[:index] if _may_count(each, operation)]
            targets = [target for target in late if target is not None]
            if len(targets) == len(late):  # a late cancellation restores what was there before
                return found + targets
    return None


def _is_cancelled(operation: Reassignment, after: Sequence[Reassignment]) -> bool:
    confirmed = operation.outcome is Outcome.OK and after and after[0].outcome is Outcome.OK
    return bool(confirmed) and after[0].replicas is None


def _is_settled(operation: Reassignment, after: Sequence[Reassignment]) -> bool:
    """Whether the partition has got these replicas, before anything else was asked for."""
    if operation.outcome is not Outcome.OK or operation.replicas is None:
        return False
    return not after or 0 <= operation.seen_to_end_us <= after[0].invoked_us


# --- folders ------------------------------------------------------------------------------------------------------


def _strays(history: History, final: FinalState, replicas: Replicas) -> Iterator[Violation]:
    reassignments = _reassignments(history)
    for folder in final.folders:
        key = folder.partition
        if folder.broker_id not in replicas.get(key, (folder.broker_id,)) and not _may_stay(
            history, reassignments, folder
        ):
            text = f"broker {folder.broker_id} has a folder of {key}, whose replicas are {replicas[key]}"
            yield Violation("reassignments", text, tuple(reassignments.get(key, ())[-1:]))


def _may_stay(history: History, reassignments: Reassignments, folder: Folder) -> bool:
    """Whether the broker's replica may have been removed while the broker, the controller, or the disk was lost."""
    operations = reassignments.get(folder.partition, ())
    if folder.is_stuck and operations:
        return True
    giving = [n for n, each in enumerate(operations) if each.replicas is not None and folder.broker_id in each.replicas]
    cancelling = [n for n, each in enumerate(operations) if each.replicas is None]
    return _may_stay_after(history, operations, folder, giving) or _may_stay_after(
        history, operations, folder, sorted([*giving, *cancelling])
    )


def _may_stay_after(
    history: History, operations: Sequence[Reassignment], folder: Folder, giving: Sequence[int]
) -> bool:
    """`giving`: the operations that gave the broker the replica. A cancellation may have given it back."""
    confirmed = max((n for n in giving if operations[n].outcome is Outcome.OK), default=-1)
    removals = operations[confirmed + 1 :]
    if not removals:
        return False
    from_us = removals[0].invoked_us
    last = operations[max(giving, default=-1) + 1 :]
    until_us = next((each.seen_to_end_us for each in last if each.seen_to_end_us >= 0), None)
    told_by_us = None if until_us is None else until_us + LONGEST_CUT_US
    if _was_away(history, folder.broker_id, from_us, told_by_us):
        return True
    was_given = confirmed >= 0 and 0 <= operations[confirmed].seen_to_end_us <= from_us
    is_replaced = any(until_us is None or each.invoked_us <= until_us for each in removals[1:])
    return (is_replaced or not was_given) and any(
        from_us <= each.invoked_us and (told_by_us is None or each.invoked_us <= told_by_us)
        for each in history.of(Elected)
    )


def _was_away(history: History, broker_id: int, from_us: int, until_us: int | None) -> bool:
    """Whether the broker's process was not registered at a time between these."""
    is_there = True
    for change in history.of(Registered):
        if change.broker_id != broker_id:
            continue
        if until_us is not None and change.invoked_us > until_us:
            break
        if change.invoked_us >= from_us and not (is_there and change.is_there):
            return True
        is_there = change.is_there
    return not is_there

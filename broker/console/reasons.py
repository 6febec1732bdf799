"""Why an operation waits, in one sentence.

A reason is read from the operation and from the partitions and groups that it waits for, at the time of the request. It
names the first few of them and counts the others. Nothing is tried: asking completes no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, cast

from odradek.broker.console.groups import name_of
from odradek.broker.console.selection import shown
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.timers import AWAITED
from odradek.broker.coordinator.group.group import Group
from odradek.broker.metrics.sources import MetricSources
from odradek.broker.replica.fetch.fetch_session import FetchSession, FetchTarget
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.partition.remote_replica import RemoteReplica
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import (
    DelayedDeleteRecords,
    DelayedElectLeader,
    DelayedFetch,
    DelayedOperation,
    DelayedProduce,
    DelayedTopicChange,
)
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from odradek.purgatory.delayed_join import DelayedJoin, InitialDelayedJoin
from odradek.purgatory.delayed_step import DelayedStep
from odradek.purgatory.delayed_sync import DelayedSync

MOST_NAMED = 3


def why(operation: DelayedOperation, sources: MetricSources, group: Group | None, takers: Collection[str] = ()) -> str:
    """`group`: the one that the operation waits for, if it waits for one. `takers`: the clients that get what a member
    gives up.
    """
    if isinstance(operation, DelayedStep):
        return _step(operation, sources, group, takers)
    classic = group if isinstance(group, ClassicGroup) else None
    for kind, reason in _REASONS:
        if isinstance(operation, kind):
            return reason(operation, sources, classic)
    return "waits for an event of its keys"


def some(texts: Iterable[str], count: int) -> str:
    """Returns the first MOST_NAMED of `count` texts, and how many more there are."""
    named = "; ".join(islice(texts, MOST_NAMED))
    return named if count <= MOST_NAMED else f"{named}; and {count - MOST_NAMED} more"


def keys_of(operation: DelayedOperation) -> list[str]:
    """The first keys as texts."""
    return [key_text(key) for key in operation.watch_keys[:MOST_NAMED]]


def key_text(key: Hashable) -> str:
    if isinstance(key, FetchSession):
        return f"fetch session {key.id}"
    if isinstance(key, TopicPartition):
        return shown(str(key))
    return shown(", ".join(map(str, key)) if isinstance(key, tuple) else str(key))


# --- requests ---------------------------------------------------------------------------------------------------


def _produce(operation: Any, sources: MetricSources, _group: ClassicGroup | None) -> str:
    def text(key: TopicPartition, required: int) -> str:
        partition = sources.replica_manager.partitions.get(key)
        if partition is None:
            return f"{shown(str(key))}, which is not on this broker"
        reached = partition.log.state.high_watermark
        if reached >= required:
            return f"{shown(str(key))} is to be flushed to the disk up to offset {required}"
        return f"{shown(str(key))} is replicated up to {reached}, needs {required}{_behind(partition, required)}"

    return f"acks: {_pending(operation, text)}"


def _behind(partition: Partition, required: int) -> str:
    """The in-sync followers that have not fetched the records."""
    late = [
        replica
        for replica in list(partition.remote_replicas.values())
        if replica.broker_id in partition.isr.maximal and replica.log_end_offset < required
    ]
    return f" ({some(map(_position, late), len(late))})" if late else ""


def _position(replica: RemoteReplica) -> str:
    if replica.log_end_offset < 0:
        return f"broker {replica.broker_id} has not fetched yet"
    return f"broker {replica.broker_id} is at {replica.log_end_offset}"


def _delete_records(operation: Any, _sources: MetricSources, _group: ClassicGroup | None) -> str:
    def text(key: TopicPartition, required: int) -> str:
        return f"not all replicas of {shown(str(key))} have deleted the records before {required}"

    return _pending(operation, text)


def _pending(operation: Any, text: Callable[[TopicPartition, int], str]) -> str:
    """The partitions of a DelayedAcknowledgement that are pending."""
    pending = [(key, status.required_offset) for key, status in operation.statuses.items() if status.acks_pending]
    return some((text(*each) for each in pending), len(pending))


def _fetch(operation: Any, _sources: MetricSources, _group: ClassicGroup | None) -> str:
    reader = "the follower" if operation.is_from_follower else "the consumer"
    wanted = f"fewer than the {operation.min_bytes} bytes that {reader} asks for"
    session = operation.watch_keys[0]
    if isinstance(session, FetchSession):
        return f"{wanted}: {_targets(list(session.targets.values()))}"
    return f"{wanted}: {_targets(operation.targets)}"


def _targets(targets: Sequence[FetchTarget]) -> str:
    return some(map(_target, targets), len(targets)) or "its fetch session is empty"


def _target(target: FetchTarget) -> str:
    name = shown(str(target.topic_partition))
    if target.hosted is None:
        return f"{name} from {target.fetch_offset}"
    return f"{name} from {target.fetch_offset}, which ends at {target.hosted.log.state.high_watermark}"


def _topic_change(operation: DelayedOperation, _sources: MetricSources, _group: ClassicGroup | None) -> str:
    count = len(operation.watch_keys)
    return f"the controller makes the change of {some(map(key_text, operation.watch_keys), count)}"


def _election(operation: DelayedOperation, _sources: MetricSources, _group: ClassicGroup | None) -> str:
    count = len(operation.watch_keys)
    return f"this broker does not know the elected leader of {some(map(key_text, operation.watch_keys), count)}"


# --- groups -----------------------------------------------------------------------------------------------------


def _heartbeat(operation: DelayedOperation, _sources: MetricSources, group: ClassicGroup | None) -> str:
    name, member_id = cast("tuple[str, str]", operation.watch_keys[0])
    if group is not None and member_id in group.pending:
        return f"a JoinGroup with the member id that group {shown(name)} has assigned"
    return f"a heartbeat: without one the member leaves group {shown(name)}"


def _initial_join(operation: DelayedOperation, _sources: MetricSources, group: ClassicGroup | None) -> str:
    return f"more members may join {_name_of(operation)}, which {_size(group)} (group.initial.rebalance.delay.ms)"


def _join(operation: DelayedOperation, _sources: MetricSources, group: ClassicGroup | None) -> str:
    if group is None:
        return f"the members of {_name_of(operation)} rejoin"
    absent = [shown(member.client_id) for member in list(group.members) if member.awaiting_join is None]
    expected = f", and {len(group.pending)} with a new member id to join" if group.pending else ""
    return f"{len(absent)} of {group.size} members of {_name_of(operation)} to rejoin{_named(absent)}{expected}"


def _sync(operation: DelayedOperation, _sources: MetricSources, group: ClassicGroup | None) -> str:
    if group is None:
        return f"the members of {_name_of(operation)} send SyncGroup"
    members = (group.member(member_id) for member_id in list(group.pending_sync))
    absent = [shown(member.client_id) for member in members if member is not None]
    return f"SyncGroup of {len(absent)} of {group.size} members of {_name_of(operation)}{_named(absent)}"


def _step(operation: DelayedStep, sources: MetricSources, group: Group | None, takers: Collection[str]) -> str:
    _, member_id, awaited = cast("tuple[str, str, str]", operation.watch_keys[0])
    member = group.member(member_id) if isinstance(group, ConsumerGroup) else None
    if awaited != AWAITED["rebalance"]:
        client = "a member" if member is None else shown(member.client_id)
        return f"{awaited} of {client} of {_name_of(operation)}, which speaks the classic protocol"
    if member is None:
        return f"a member of {_name_of(operation)} gives up partitions"
    count = sum(map(len, member.revoking.values()))
    keys = ((topic_id, number) for topic_id, numbers in member.revoking.items() for number in numbers)
    given_up = some((name_of(sources, *key) for key in keys), count)
    waiting = f", for which {some(map(shown, takers), len(takers))} {'waits' if len(takers) == 1 else 'wait'}"
    return f"{shown(member.client_id)} of {_name_of(operation)} gives up {given_up}{waiting if takers else ''}"


def _named(clients: list[str]) -> str:
    return f" ({some(clients, len(clients))})" if clients else ""


def _size(group: ClassicGroup | None) -> str:
    return "is gone" if group is None else f"has {group.size}"


def _name_of(operation: DelayedOperation) -> str:
    key = cast("tuple[str, str]", operation.watch_keys[0])
    return f"group {shown(key[0])}"


_REASONS: tuple[tuple[type[DelayedOperation], Callable[[Any, MetricSources, ClassicGroup | None], str]], ...] = (
    (DelayedProduce, _produce),
    (DelayedDeleteRecords, _delete_records),
    (DelayedFetch, _fetch),
    (DelayedTopicChange, _topic_change),
    (DelayedElectLeader, _election),
    (DelayedHeartbeat, _heartbeat),
    (InitialDelayedJoin, _initial_join),
    (DelayedJoin, _join),
    (DelayedSync, _sync),
)
"""The first class that fits counts."""

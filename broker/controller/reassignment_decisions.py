"""Decides reassignments of replicas. Synchronous, without side effects.

The partition's state holds the reassignment. `replicas` contains all replicas, including those being added (`adding`)
and those being removed (`removing`), so that

    origin = replicas without adding        the replicas before, restored by a cancellation
    target = replicas without removing      the replicas after

    (A) A reassignment starts with the replicas of target and origin together, in the target's order. A reassignment
        that replaces another one keeps the same origin. Replicas that only the replaced one has added are dropped.
    (B) It is complete when every target replica is in sync, and one of them may lead. Then only the target's replicas
        remain, removed replicas leave the in-sync replicas, and if the leader was removed or lost, the first target
        replica that may lead becomes the leader.
    (C) Each change raises the leader epoch once, so that clients and followers refresh their metadata. A partition that
        never had a leader has no epoch yet.
    (D) A reassignment to the current replicas is complete at once; only the leader epoch grows.
    (E) A cancellation is a reassignment to the origin. No reassignment may drop the last replica that is in sync.

With origin {1,2,3} and target {4,5,6}, the states are, as in Kafka:

    replicas        adding     removing   leader   in sync
    {1,2,3}         {}         {}         1        {1,2,3}          before
    {4,5,6,1,2,3}   {4,5,6}    {1,2,3}    1        {1,2,3}          begun
    {4,5,6,1,2,3}   {4,5,6}    {1,2,3}    1        {1,2,3,4,5,6}    the leader has added the followers
    {4,5,6}         {4,5,6}    {1,2,3}    4        {4,5,6}          completed; the replicas on 1, 2 and 3 are deleted
    {4,5,6}         {}         {}         4        {4,5,6}          after

Source: KIP-455; Kafka's `ReplicaAssignment`, `KafkaController.onPartitionReassignment`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from odradek.broker.controller.partition_states import is_new
from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError


def is_being_reassigned(state: PartitionState) -> bool:
    """Whether replicas are being added or removed."""
    return bool(state.adding or state.removing)


def origin_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas without those being added."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas without those being removed."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def check_target(target: Sequence[int], origin: Collection[int], live: Collection[int]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for replicas that no partition can have: those that are added must be alive.

    Of very many replicas only the first are checked: among more than there are brokers, one is repeated or not alive.
    """
    target = target[: len(live) + len(origin) + 1]
    fault = None
    if not target:
        fault = "A partition needs at least one replica"
    elif min(target) < 0:
        fault = f"Broker ids must not be negative: {list(target)}"
    elif len(set(target)) != len(target):
        fault = f"Duplicate broker ids: {list(target)}"
    elif not set(target) <= {*live, *origin}:
        fault = f"Brokers not available: {sorted(set(target) - {*live, *origin})}"
    if fault is not None:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def check_size(target: Sequence[int], state: PartitionState) -> None:
    """Raises INVALID_REPLICATION_FACTOR unless the target has as many replicas as the partition is to have now."""
    size = len(target_of(state))
    if len(target) != size:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The number of replicas must not change from {size} to {len(target)}"
        )


def begun(
    state: PartitionState, target: Sequence[int], electable: Collection[int], controller_epoch: int
) -> PartitionState:
    """Starts a reassignment (A, C). Raises INVALID_REPLICA_ASSIGNMENT (E)."""
    origin = origin_of(state)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    isr = tuple(broker for broker in state.isr if broker in replicas)
    leader = state.leader
    if state.isr and not isr:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Only replicas that would be dropped are in sync: {list(state.isr)}"
        )
    if leader not in replicas:
        leader = next((broker for broker in replicas if broker in isr and broker in electable), NO_LEADER)
    return state._replace(
        replicas=replicas,
        isr=isr,
        leader=leader,
        adding=tuple(broker for broker in replicas if broker not in origin),
        removing=tuple(broker for broker in replicas if broker not in target),
        leader_epoch=state.leader_epoch if is_new(state) else state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )


def cancelled(state: PartitionState, electable: Collection[int], controller_epoch: int) -> PartitionState:
    """Returns to the origin (E). Raises NO_REASSIGNMENT_IN_PROGRESS."""
    if not is_being_reassigned(state):
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return begun(state, origin_of(state), electable, controller_epoch)


def is_complete(state: PartitionState, present: Collection[int], electable: Collection[int]) -> bool:
    """Whether the reassignment can be completed (B)."""
    if not is_being_reassigned(state):
        return True
    target = target_of(state)
    may_lead = state.leader in present or any(broker in electable for broker in target)
    if state.leader not in target:
        may_lead = any(broker in electable for broker in target)
    return may_lead and set(target) <= set(state.isr)


def completed(
    state: PartitionState, present: Collection[int], electable: Collection[int], controller_epoch: int
) -> PartitionState:
    """Completes a reassignment (B). The caller raises the leader epoch if this is a change of its own (C)."""
    target = target_of(state)
    isr = tuple(broker for broker in state.isr if broker in target)
    leader = state.leader
    if leader not in target or leader not in present:
        leader = next((broker for broker in target if broker in electable and broker in isr), NO_LEADER)
    return state._replace(
        replicas=target, adding=(), removing=(), isr=isr, leader=leader, controller_epoch=controller_epoch
    )

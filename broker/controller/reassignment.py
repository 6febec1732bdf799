"""Decides reassignments of replicas and elections of leaders. Synchronous, without side effects.

The partition's state holds the reassignment. `replicas` contains all replicas, including those being added (`adding`)
and those being removed (`removing`), so that

    origin = replicas without adding        the replicas before, restored by a cancellation
    target = replicas without removing      the replicas after

    (A) A reassignment starts with the replicas of target and origin together, in the target's order. A reassignment
        that replaces another one keeps the same origin.
    (B) It is complete when every target replica is in sync. Then only the target's replicas remain, removed replicas
        leave the in-sync replicas, and if the leader was removed, the first live in-sync replica becomes the leader.
    (C) Each change raises the leader epoch once, so that clients and followers refresh their metadata.
    (D) A reassignment to the current replicas is complete at once; only the leader epoch grows.

Source: KIP-455, KIP-460; Kafka's `ReplicaAssignment`, `KafkaController.onPartitionReassignment`,
`PartitionLeaderElectionAlgorithms`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum

from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError


class ElectionType(IntEnum):
    """The election types, numbered as in Kafka (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def is_being_reassigned(state: PartitionState) -> bool:
    """Whether replicas are being added or removed."""
    return bool(state.adding or state.removing)


def origin_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas without those being added."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas without those being removed."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def check_target(target: Sequence[int], live: Collection[int]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for replicas that no partition can have.

    Only the first len(live) + 1 brokers are checked: among more replicas than live brokers, one is repeated or not
    live.
    """
    target = target[: len(live) + 1]
    fault = None
    if not target:
        fault = "A partition needs at least one replica"
    elif len(target) > len(live):
        fault = f"{len(target)} replicas, but only {len(live)} brokers are available"
    elif min(target) < 0:
        fault = f"Broker ids must not be negative: {list(target)}"
    elif len(set(target)) != len(target):
        fault = f"Duplicate broker ids: {list(target)}"
    elif not set(target) <= set(live):
        fault = f"Brokers not available: {sorted(set(target) - set(live))}"
    if fault is not None:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def begun(state: PartitionState, target: Sequence[int], controller_epoch: int) -> PartitionState:
    """Starts a reassignment (A, C)."""
    origin = origin_of(state)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    return state._replace(
        replicas=replicas,
        adding=tuple(broker for broker in replicas if broker not in origin),
        removing=tuple(broker for broker in replicas if broker not in target),
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )


def cancelled(state: PartitionState, controller_epoch: int) -> PartitionState:
    """Returns to the origin. Raises NO_REASSIGNMENT_IN_PROGRESS."""
    if not is_being_reassigned(state):
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return begun(state, origin_of(state), controller_epoch)


def is_complete(state: PartitionState) -> bool:
    """Whether the reassignment can be completed (B)."""
    return set(target_of(state)) <= set(state.isr)


def completed(state: PartitionState, live: Collection[int]) -> PartitionState:
    """Completes a reassignment (B). Requires `is_complete`; the previous step has already raised the leader epoch."""
    target = target_of(state)
    isr = tuple(broker for broker in state.isr if broker in target)
    leader = state.leader
    if leader not in target:
        leader = next((broker for broker in target if broker in live and broker in isr), NO_LEADER)
    return state._replace(replicas=target, adding=(), removing=(), isr=isr, leader=leader)


def elected(
    state: PartitionState, election: ElectionType, live: Collection[int], controller_epoch: int
) -> PartitionState:
    """The partition's state under its new leader: the preferred replica, or (unclean) any live replica if the partition
    has no live leader.

    Raises ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    leader, isr = (_preferred if election is ElectionType.PREFERRED else _unclean)(state, live)
    return state._replace(
        leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch
    )


def _preferred(state: PartitionState, live: Collection[int]) -> tuple[int, tuple[int, ...]]:
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED)
    if preferred not in live or preferred not in state.isr:
        raise ProtocolError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"Broker {preferred} is not available or not in sync"
        )
    return preferred, state.isr


def _unclean(state: PartitionState, live: Collection[int]) -> tuple[int, tuple[int, ...]]:
    if state.leader != NO_LEADER and state.leader in live:
        raise ProtocolError(ErrorCode.ELECTION_NOT_NEEDED)
    in_sync = tuple(broker for broker in state.isr if broker in live)
    for broker in state.replicas:
        if broker in in_sync:
            return broker, in_sync
    for broker in state.replicas:
        if broker in live:
            return broker, (broker,)
    raise ProtocolError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas is available")

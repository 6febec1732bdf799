"""Other replicas for a partition, and another leader: what a request amounts to. Synchronous and without effect.

A reassignment lives in the partition's state: `replicas` are all of them, those that come (`adding`) and those that go
(`removing`) included, so that

    origin = replicas without adding        what it was, and what a cancellation goes back to
    target = replicas without removing      what it shall be

    (A) A reassignment begins with target and origin together as replicas, in the target's order. One that replaces
        another starts from the same origin.
    (B) It is complete when all of the target is in sync. Then target is all there is, those who went have left the
        in-sync replicas, and if the leader went too the first live replica in sync leads.
    (C) Both steps raise the leader epoch: clients and followers are to ask again.
    (D) A reassignment to what is there already is complete at once; only its epoch grows.

Source: KIP-455, KIP-460; Kafka's `ReplicaAssignment`, `KafkaController.onPartitionReassignment`,
`PartitionLeaderElectionAlgorithms`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum

from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError


class ElectionType(IntEnum):
    """Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def is_being_reassigned(state: PartitionState) -> bool:
    """Whether replicas come or go."""
    return bool(state.adding or state.removing)


def origin_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas without those that come."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas without those that go."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def check_target(target: Sequence[int], live: Collection[int]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for replicas that no partition can have.

    The first of them decide: among more replicas than live brokers one is repeated or not live.
    """
    target = target[: len(live) + 1]
    fault = None
    if not target:
        fault = "A partition needs a replica"
    elif len(target) > len(live):
        fault = f"{len(target)} replicas; {len(live)} brokers are there"
    elif min(target) < 0:
        fault = f"No broker has a number below 0: {list(target)}"
    elif len(set(target)) != len(target):
        fault = f"A broker is named twice: {list(target)}"
    elif not set(target) <= set(live):
        fault = f"These brokers are not there: {sorted(set(target) - set(live))}"
    if fault is not None:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def begun(state: PartitionState, target: Sequence[int], controller_epoch: int) -> PartitionState:
    """(A), (C)."""
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
    """Back to what it was. Raises NO_REASSIGNMENT_IN_PROGRESS."""
    if not is_being_reassigned(state):
        raise ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return begun(state, origin_of(state), controller_epoch)


def is_complete(state: PartitionState) -> bool:
    """(B): nothing more is to be waited for."""
    return set(target_of(state)) <= set(state.isr)


def completed(state: PartitionState, live: Collection[int]) -> PartitionState:
    """(B), for a state that `is_complete`; its epoch has been raised by the step before."""
    target = target_of(state)
    isr = tuple(broker for broker in state.isr if broker in target)
    leader = state.leader
    if leader not in target:
        leader = next((broker for broker in target if broker in live and broker in isr), NO_LEADER)
    return state._replace(replicas=target, adding=(), removing=(), isr=isr, leader=leader)


def elected(
    state: PartitionState, election: ElectionType, live: Collection[int], controller_epoch: int
) -> PartitionState:
    """The partition under its new leader: its first replica, or (unclean) any live one where it has none.

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
        raise ProtocolError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"Broker {preferred} is not there or not in sync")
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
    raise ProtocolError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas is there")

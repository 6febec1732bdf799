"""The states of a partition in the controller, the legal moves between them, and the choice of its leader. Synchronous,
without side effects.

    NON_EXISTENT   not created yet, or its deletion has started
    NEW            has replicas, but no leader was ever chosen: its state is not in the metadata store
    ONLINE         has a leader that is alive
    OFFLINE        its leader is not alive, and no other replica may lead

A partition's `PartitionState` has NO_EPOCH as its epochs while the partition is NEW. Each function returns the
partition's next state, or None if there is none (no replica may lead; nothing changes).

    (A) Each change of leader or in-sync replicas by the controller raises the leader epoch once, so that replicas of
        the old epoch are fenced.
    (B) The first of the assigned replicas that may lead and is in sync becomes the leader. Only where the topic allows
        it (unclean), and no replica that is in sync may lead, a replica that is not in sync does; records may be lost.
    (C) Replicas that are lost (broker dead, log directory offline) leave the in-sync replicas, except the last ones: if
        all were lost, they stay in sync, because only they have all records.
    (D) A broker that is shutting down may not become leader, but is not lost: it leads on where nobody else can.
    (E) A broker that has restarted may have lost the end of its logs, or all of them. It leaves the in-sync replicas
        even if it is back already, except where all have restarted. In any case the leader epoch is raised: what its
        predecessor has sent or is known to have, and the records that it appended as leader, are of an older epoch.

Source: Kafka's `PartitionStateMachine`, `Election`, `PartitionLeaderElectionAlgorithms`, `ReplicaStateMachine`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState

NO_EPOCH = -1
FIRST_LEADER_EPOCH = 0


class PartitionPhase(Enum):
    """What the controller knows of a partition; see the head of this file."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


PARTITION_MOVES: Mapping[tuple[PartitionPhase, PartitionPhase], str] = {
    (PartitionPhase.NON_EXISTENT, PartitionPhase.NEW): "replicas were assigned",
    (PartitionPhase.NEW, PartitionPhase.ONLINE): "the first leader was chosen",
    (PartitionPhase.NEW, PartitionPhase.OFFLINE): "the deletion starts",
    (PartitionPhase.ONLINE, PartitionPhase.ONLINE): "a new leader was elected",
    (PartitionPhase.ONLINE, PartitionPhase.OFFLINE): "the leader was lost, or the deletion starts",
    (PartitionPhase.OFFLINE, PartitionPhase.OFFLINE): "no replica may lead yet",
    (PartitionPhase.OFFLINE, PartitionPhase.ONLINE): "a new leader was elected",
    (PartitionPhase.OFFLINE, PartitionPhase.NON_EXISTENT): "the deletion has started",
}
"""Every legal move and its reason. A move that is not in the table is an error in the controller."""


def unled(partition: int, replicas: tuple[int, ...], controller_epoch: int) -> PartitionState:
    """The state of a partition that is NEW."""
    return PartitionState(partition, NO_LEADER, NO_EPOCH, replicas, (), controller_epoch, NO_EPOCH)


def is_new(state: PartitionState) -> bool:
    """Whether no leader was ever chosen."""
    return state.partition_epoch == NO_EPOCH


def first_state(state: PartitionState, electable: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first leader of a partition that is NEW: the first replica that may lead; all of those are in sync."""
    isr = tuple(broker for broker in state.replicas if broker in electable)
    if not isr:
        return None
    return state._replace(
        leader=isr[0],
        leader_epoch=FIRST_LEADER_EPOCH,
        isr=isr,
        controller_epoch=controller_epoch,
        partition_epoch=0,
    )


def after_losses(
    state: PartitionState,
    *,
    present: Collection[int],
    electable: Collection[int],
    unclean: bool,
    crashed: Collection[int] = (),
    controller_epoch: int,
) -> PartitionState | None:
    """The state after replicas were lost, or came back. `present` are the replicas that are not lost, `electable` those
    of them that may become leader (C, D). `crashed` are brokers that were lost without having shut down (E).
    """
    if state.leader not in present:
        led = offline_election(state, electable, unclean, controller_epoch)
        if led is not None:
            return led
    leader = state.leader if state.leader in present else NO_LEADER
    isr = tuple(broker for broker in state.isr if broker in present) or state.isr
    is_fenced = leader != NO_LEADER and any(broker in crashed for broker in state.replicas)
    if (leader, isr) == (state.leader, state.isr) and not is_fenced:
        return None
    return _next(state, leader, isr, controller_epoch)


def after_restarts(
    state: PartitionState, restarted: Collection[int], electable: Collection[int], controller_epoch: int
) -> PartitionState:
    """The state after brokers with replicas have restarted, of which it is not known that they were lost in between
    (E).
    """
    isr = tuple(broker for broker in state.isr if broker not in restarted) or state.isr
    leader = state.leader
    if leader not in isr or leader not in electable:
        leader = next((broker for broker in state.replicas if broker in isr and broker in electable), NO_LEADER)
    return _next(state, leader, isr, controller_epoch)


def needs_unclean_election(state: PartitionState, present: Collection[int], electable: Collection[int]) -> bool:
    """Whether only an unclean election gives the partition a leader."""
    return (
        state.leader not in present
        and not any(broker in electable for broker in state.isr)
        and any(broker in electable for broker in state.replicas)
    )


def offline_election(
    state: PartitionState, electable: Collection[int], unclean: bool, controller_epoch: int
) -> PartitionState | None:
    """The election of a partition without leader (B)."""
    isr = tuple(broker for broker in state.isr if broker in electable)
    for broker in state.replicas:
        if broker in isr:
            return _next(state, broker, isr, controller_epoch)
    for broker in state.replicas if unclean else ():
        if broker in electable:
            return _next(state, broker, (broker,), controller_epoch)
    return None


def preferred_election(
    state: PartitionState, electable: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """The election of the first assigned replica, which must be in sync."""
    preferred = state.replicas[0]
    if preferred not in electable or preferred not in state.isr:
        return None
    return _next(state, preferred, state.isr, controller_epoch)


def shutdown_election(
    state: PartitionState, electable: Collection[int], shutting_down: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """The election that takes the leadership from a broker that is shutting down."""
    isr = tuple(broker for broker in state.isr if broker not in shutting_down)
    leader = next((broker for broker in state.replicas if broker in electable and broker in isr), None)
    return None if leader is None else _next(state, leader, isr, controller_epoch)


def without_replica(state: PartitionState, broker_id: int, controller_epoch: int) -> PartitionState | None:
    """The state in which a replica that does not lead is no longer in sync; the last one stays (C)."""
    isr = tuple(broker for broker in state.isr if broker != broker_id)
    return None if isr in ((), state.isr) else _next(state, state.leader, isr, controller_epoch)


def is_led_by_preferred(state: PartitionState) -> bool:
    """Whether the first assigned replica leads. One that is only being added need not lead yet, once it is in sync."""
    preferred = state.replicas[0]
    return preferred in state.isr if preferred in state.adding else state.leader == preferred


def _next(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return state._replace(
        leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch
    )

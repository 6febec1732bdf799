"""Bugs of the controller: elections, reassignments, deletions. See planted.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from odradek.broker.controller import broker_changes, elections, isr_changes
from odradek.broker.controller import reassignment_decisions as reassignment
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.isr_changes import IsrChanges
from odradek.broker.controller.partition_states import after_losses
from odradek.broker.controller.replica_states import ReplicaPhase
from odradek.broker.controller.topic_deletions import TopicDeletions
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.planted_in_sessions import Replace

# --- elections


def _elect_any_replica(replace: Replace) -> None:
    def elect(
        state: PartitionState, electable: Collection[int], shutting_down: Collection[int], controller_epoch: int
    ) -> PartitionState | None:
        leader = next((broker for broker in state.replicas if broker in electable), None)
        isr = tuple(dict.fromkeys([*(broker for broker in state.isr if broker not in shutting_down), leader or 0]))
        after = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)
        return None if leader is None else after._replace(leader=leader, isr=isr)

    replace(broker_changes, "shutdown_election", elect)


def _stay_with_who_stops(replace: Replace) -> None:
    replace(ControllerContext, "electable", lambda self, key, state: self.present(key, state))


def _prefer_without_sync(replace: Replace) -> None:
    def elect(state: PartitionState, electable: Collection[int], controller_epoch: int) -> PartitionState | None:
        preferred = state.replicas[0]
        if preferred not in electable:
            return None
        return state._replace(leader=preferred, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)

    replace(elections, "preferred_election", elect)


def _forget_the_last_in_sync(replace: Replace) -> None:
    def forget(state: PartitionState, **facts: Any) -> PartitionState | None:
        after = after_losses(state, **facts)
        if after is None or after.leader >= 0:
            return after
        return after._replace(isr=tuple(broker for broker in after.isr if broker in facts["present"]))

    replace(broker_changes, "after_losses", forget)


def _keep_the_epoch(replace: Replace) -> None:
    def keep(state: PartitionState, **facts: Any) -> PartitionState | None:
        after = after_losses(state, **facts)
        return None if after is None else after._replace(leader_epoch=state.leader_epoch)

    replace(broker_changes, "after_losses", keep)


# --- proposals of in-sync replicas


def _altered(replace: Replace, change: Callable[[Any, PartitionState, int], tuple[Any, PartitionState, int]]) -> None:
    altered = isr_changes.altered

    def lenient(
        state: PartitionState, proposal: Any, broker_id: int, electable: list[int], controller_epoch: int
    ) -> PartitionState | None:
        changed, seen, by = change(proposal, state, broker_id)
        return altered(seen, changed, by, electable, controller_epoch)

    replace(isr_changes, "altered", lenient)


def _accept_an_old_leader_epoch(replace: Replace) -> None:
    def change(proposal: Any, state: PartitionState, by: int) -> tuple[Any, PartitionState, int]:
        if proposal.leader_epoch < state.leader_epoch:
            proposal.leader_epoch, proposal.partition_epoch = state.leader_epoch, state.partition_epoch
        return proposal, state, by

    _altered(replace, change)


def _accept_an_old_partition_epoch(replace: Replace) -> None:
    def change(proposal: Any, state: PartitionState, by: int) -> tuple[Any, PartitionState, int]:
        proposal.partition_epoch = min(proposal.partition_epoch, state.partition_epoch)
        if proposal.leader_epoch == state.leader_epoch:
            proposal.partition_epoch = state.partition_epoch
        return proposal, state, by

    _altered(replace, change)


def _accept_from_who_does_not_lead(replace: Replace) -> None:
    def change(proposal: Any, state: PartitionState, by: int) -> tuple[Any, PartitionState, int]:
        if by != state.leader:
            proposal.new_isr = [state.leader, *(broker for broker in proposal.new_isr if broker != state.leader)]
        return proposal, state, state.leader

    _altered(replace, change)


def _accept_an_old_registration(replace: Replace) -> None:
    alter = IsrChanges.alter

    async def lenient(self: IsrChanges, request: Any) -> Any:
        broker = self._context.brokers.get(request.broker_id)
        if broker is not None and broker.epoch != request.broker_epoch:
            request.broker_epoch = broker.epoch
            for topic in request.topics:
                for each in topic.partitions:
                    state = self._context.state(TopicPartition(topic.topic_name, each.partition_index))
                    if state is not None and each.leader_epoch == state.leader_epoch:
                        each.partition_epoch = min(each.partition_epoch, state.partition_epoch)
        return await alter(self, request)

    replace(IsrChanges, "alter", lenient)


def _let_the_dead_join(replace: Replace) -> None:
    altered = isr_changes.altered

    def lenient(
        state: PartitionState, proposal: Any, broker_id: int, electable: list[int], controller_epoch: int
    ) -> PartitionState | None:
        return altered(state, proposal, broker_id, [*state.replicas], controller_epoch)

    replace(isr_changes, "altered", lenient)


# --- reassignments


def _complete_too_soon(replace: Replace) -> None:
    def is_complete(state: PartitionState, present: Collection[int], electable: Collection[int]) -> bool:
        target = reassignment.target_of(state)
        return any(broker in state.isr and broker in electable for broker in target)

    replace(reassignment, "is_complete", is_complete)


def _begin_from_all(replace: Replace) -> None:
    replace(reassignment, "origin_of", lambda state: state.replicas)


# --- deletions


def _delete_without_the_dead(replace: Replace) -> None:
    move = ControllerContext.move_replica

    def forget(self: ControllerContext, key: TopicPartition, broker_id: int, phase: ReplicaPhase) -> None:
        move(self, key, broker_id, phase)
        if phase is ReplicaPhase.DELETION_INELIGIBLE:
            self._replica_phases[key][broker_id] = ReplicaPhase.DELETION_SUCCESSFUL

    replace(ControllerContext, "move_replica", forget)


def _unmark_at_once(replace: Replace) -> None:
    from odradek.broker.metadata_store import znodes
    from odradek.broker.metadata_store.interface import Delete

    start = TopicDeletions._start

    async def unmark(self: TopicDeletions, name: str, pace: Any) -> None:
        await start(self, name, pace)
        await self._store.pipeline([[Delete(znodes.deletion_path(name))]])

    replace(TopicDeletions, "_start", unmark)


CONTROLLER_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "a broker that stops gives its leadership to any replica": _elect_any_replica,
    "a broker that stops may become leader": _stay_with_who_stops,
    "a preferred leader need not be in sync": _prefer_without_sync,
    "the last in-sync replica is forgotten": _forget_the_last_in_sync,
    "an election does not raise the epoch": _keep_the_epoch,
    "proposals of an old leader epoch are accepted": _accept_an_old_leader_epoch,
    "proposals of an old partition epoch are accepted": _accept_an_old_partition_epoch,
    "proposals of a broker that does not lead are accepted": _accept_from_who_does_not_lead,
    "proposals of an old registration are accepted": _accept_an_old_registration,
    "a broker that is dead joins the ISR": _let_the_dead_join,
    "a reassignment completes before its target is in sync": _complete_too_soon,
    "a replaced reassignment begins from all replicas": _begin_from_all,
    "a topic is deleted without the brokers that are dead": _delete_without_the_dead,
    "the mark of a deletion is removed when it starts": _unmark_at_once,
}
"""How to plant each bug."""

"""Reassigns replicas, over several events; `reassignment_decisions.py` decides.

    begin        the new assignment is stored with the partition's state; all its replicas get LeaderAndIsr, and those
                 that are added start to fetch
    complete     when the leader has added them to the in-sync replicas (AlterPartition): the new leader and the reduced
                 in-sync replicas are stored, and the removed replicas are deleted
    finish       when the brokers of the removed replicas have answered, or are dead, or another reassignment of the
                 partition begins: the target is stored as the assignment. Until then the next controller would complete
                 the reassignment once more.

The work for each partition of a long list is done in steps (`background/stepwise.py`), within the event.

A reassignment whose target is in sync at once is completed in its first step, and finished in the same transaction if
nothing is removed. Each new controller, and each start of a broker of the target, tries to go on.

Reassignments may also be requested in `/admin/reassign_partitions`, where Kafka's tools put them before KIP-455. The
entry is deleted when the last of them is complete or refused (`stored_requests.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from odradek.broker.background.stepwise import Pace, others_between
from odradek.broker.controller import reassignment_decisions as reassignment
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext, Finishing
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_changes import PartitionChanges
from odradek.broker.controller.partition_states import is_new
from odradek.broker.controller.replica_states import ReplicaPhase
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    Delete,
    MetadataStoreError,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
    Watch,
    has_lost_connection,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

COST = 5
"""The cost of checking a partition or of carrying out its change, in items of a step."""

MOST_NAMED = 10
"""How many partitions a line of the log names. All of them are logged at the level DEBUG."""

Outcomes = dict[TopicPartition, ProtocolError | None]

log = structlog.get_logger("controller")


class Reassignments:
    """Reassigns the partitions in `context`. `try_later` calls `finish_all` again after a while."""

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        changes: PartitionChanges,
        requests: ControlRequests,
        try_later: Callable[[], object],
    ) -> None:
        self._store = store
        self._context = context
        self._changes = changes
        self._requests = requests
        self._try_later = try_later
        self._requested: dict[TopicPartition, tuple[int, ...]] = {}

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_resize: bool = True
    ) -> Outcomes:
        """Starts or cancels reassignments. `may_resize`: the number of replicas may change (KIP-860).

        Returns, per partition, None if the reassignment has started (or is complete), otherwise
        INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS (a target of None cancels),
        UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR.
        """
        finishing = self._context.finishing
        outcomes: Outcomes = {}
        valid: dict[TopicPartition, Sequence[int] | None] = {}
        live = [broker for broker in self._context.brokers if broker not in self._context.shutting_down]
        async for key, target in others_between(targets.items(), COST):
            fault = self._fault(key, target, live, may_resize=may_resize)
            if fault is None:
                valid[key] = target
            outcomes[key] = fault
        waiting = [key for key in valid if key in finishing]
        await self._finish(waiting)
        for key in waiting:
            if key in finishing:
                del valid[key]
                message = "The last reassignment could not be stored"
                outcomes[key] = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        outcomes.update(await self._step(valid, lambda key, state: self._begun(key, state, valid[key])))
        await self._forget_requested(key for key, error in outcomes.items() if error is None)
        return outcomes

    async def advance(self, keys: Iterable[TopicPartition]) -> None:
        """Completes the reassignments among these partitions whose target is in sync."""
        ready = [key async for key in others_between(keys) if self._is_ready(key)]
        await self._step(ready, self._next)

    async def resume(self, brokers: Collection[int] | None = None) -> None:
        """Goes on with all reassignments, or with those that have one of these brokers in their target."""
        under_way = self._context.reassigning()
        concerned = [
            key
            async for key, state in others_between(under_way.items())
            if brokers is None or any(broker in brokers for broker in reassignment.target_of(state))
        ]
        async for key in others_between(concerned):
            if key not in self._context.finishing:
                self._requests.lead(under_way[key].adding, key, is_new=True)
        await self.advance(concerned)

    async def start_requested(self, watch: Watch | None) -> None:
        """Starts the reassignments that tools have requested in the store, and watches for others."""
        entry = await self._store.exists(znodes.REASSIGN_PARTITIONS, watch)
        if entry is None:
            return
        try:
            targets = znodes.parse_reassignments(entry.data)
        except StoreDamaged as error:
            log.error("requested reassignments left alone", reason=str(error))
            return
        outcomes = await self.reassign(
            {key: target for key, target in targets.items() if self._requested.get(key) != target}
        )
        for key, refusal in outcomes.items():
            if refusal is not None:
                log.warning("reassignment refused", partition=str(key), reason=str(refusal))
        under_way = self._context.reassigning()
        self._requested = {key: target for key, target in targets.items() if key in under_way}
        if self._requested != targets:
            await self._store_requested()

    async def stopped(self, broker_id: int, keys: Iterable[TopicPartition]) -> None:
        """Notes that a broker has answered the request to delete these replicas."""
        async for key in others_between(keys, COST):
            finishing = self._context.finishing.get(key)
            if finishing is not None and broker_id in finishing.awaited:
                del finishing.awaited[broker_id]
                self._dropped(key, broker_id)
        await self.finish_all()

    async def brokers_died(self, brokers: Collection[int]) -> None:
        """No longer waits for these brokers: their replicas will not be deleted."""
        async for key, finishing in others_between(list(self._context.finishing.items()), COST):
            for broker in [broker for broker in finishing.awaited if broker in brokers]:
                del finishing.awaited[broker]
                self._dropped(key, broker)
        await self.finish_all()

    async def finish_all(self) -> None:
        """Finishes the reassignments that wait for no broker."""
        await self._finish([key for key, each in self._context.finishing.items() if not each.awaited])

    # Steps

    def _fault(
        self, key: TopicPartition, target: Sequence[int] | None, live: Collection[int], *, may_resize: bool
    ) -> ProtocolError | None:
        """An invalid target, or a cancellation of nothing, is reported before a partition that does not exist, or whose
        topic is being deleted: as in Kafka.
        """
        state = self._context.state(key)
        if target is None:
            if state is None or not reassignment.is_being_reassigned(state):
                return ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        else:
            try:
                reassignment.check_target(target, () if state is None else reassignment.origin_of(state), live)
                if state is not None and not may_resize:
                    reassignment.check_size(target, state)
            except ProtocolError as refusal:
                return refusal
        if state is None or key.topic in self._context.deletions:
            return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        return None

    def _begun(self, key: TopicPartition, state: PartitionState, target: Sequence[int] | None) -> PartitionState:
        electable, epoch = self._context.electable(key, state), self._context.epoch
        if target is None:
            return reassignment.cancelled(state, electable, epoch)
        return reassignment.begun(state, target, electable, epoch)

    def _next(self, _key: TopicPartition, state: PartitionState) -> PartitionState:
        return state._replace(leader_epoch=state.leader_epoch + 1)

    def _is_ready(self, key: TopicPartition) -> bool:
        state = self._context.state(key)
        return state is not None and reassignment.is_being_reassigned(state) and self._is_complete(key, state)

    def _is_complete(self, key: TopicPartition, state: PartitionState) -> bool:
        present, electable = self._context.present(key, state), self._context.electable(key, state)
        return is_new(state) or reassignment.is_complete(state, present, electable)

    async def _step(
        self,
        keys: Iterable[TopicPartition],
        begin: Callable[[TopicPartition, PartitionState], PartitionState],
    ) -> Outcomes:
        """Changes partitions to what `begin` returns, and completes them at once where possible."""
        context = self._context
        before: dict[TopicPartition, PartitionState] = {}
        assignments: dict[TopicPartition, PartitionState] = {}

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState:
            before[key] = state
            assignments.pop(key, None)
            begun = begin(key, state)
            if not self._is_complete(key, begun):
                return begun
            present, electable = context.present(key, begun), context.electable(key, begun)
            if any(broker in present for broker in begun.removing):
                assignments[key] = begun
            return reassignment.completed(begun, present, electable, context.epoch)

        outcomes: Outcomes = {}
        started: list[TopicPartition] = []
        completed: list[TopicPartition] = []
        changed = await self._changes.change(keys, decide, assignments=assignments)
        async for key, outcome in others_between(changed.items(), COST):
            outcomes[key] = outcome if isinstance(outcome, ProtocolError) else None
            if isinstance(outcome, ProtocolError):
                self._carry_out_state(key, before.get(key))
            elif isinstance(outcome, PartitionState):
                self._carry_out(key, before[key], assignments.get(key), outcome)
                (started if reassignment.is_being_reassigned(outcome) else completed).append(key)
        if started:
            log.info("reassignments started", count=len(started), partitions=_first(started))
        if completed:
            log.info("reassignments completed", count=len(completed), partitions=_first(completed))
        return outcomes

    def _carry_out(
        self, key: TopicPartition, before: PartitionState, stored: PartitionState | None, after: PartitionState
    ) -> None:
        context, requests = self._context, self._requests
        if stored is not None:
            awaited = dict.fromkeys(broker for broker in stored.removing if context.is_present(broker, key))
            context.finishing[key] = Finishing(stored, awaited)
        for broker in before.replicas:
            if broker not in after.replicas:
                self._remove_replica(key, broker, is_awaited=stored is not None and broker in stored.removing)
        context.update_phases(key, after)
        for broker in after.replicas:
            requests.lead([broker], key, is_new=broker not in before.replicas)
        requests.publish(key)
        log.debug(
            "reassignment started" if reassignment.is_being_reassigned(after) else "reassignment completed",
            partition=str(key),
            leader=after.leader,
            leader_epoch=after.leader_epoch,
            replicas=after.replicas,
            adding=after.adding,
            removing=after.removing,
        )

    def _carry_out_state(self, key: TopicPartition, before: PartitionState | None) -> None:
        """Sends the state of a partition whose assignment could not be stored, if the state itself could."""
        state = self._context.state(key)
        if before is not None and state is not None and state != before:
            self._context.update_phases(key, state)
            self._requests.lead(state.replicas, key)
            self._requests.publish(key)

    def _remove_replica(self, key: TopicPartition, broker_id: int, *, is_awaited: bool) -> None:
        context = self._context
        if context.replica_phase(key, broker_id) is not ReplicaPhase.OFFLINE:
            context.move_replica(key, broker_id, ReplicaPhase.OFFLINE)
        context.move_replica(key, broker_id, ReplicaPhase.DELETION_STARTED)
        self._requests.stop(broker_id, key, delete=True)
        if not is_awaited or not context.is_present(broker_id, key):
            self._dropped(key, broker_id)

    def _dropped(self, key: TopicPartition, broker_id: int) -> None:
        self._context.move_replica(key, broker_id, ReplicaPhase.DELETION_SUCCESSFUL)
        self._context.move_replica(key, broker_id, ReplicaPhase.NON_EXISTENT)

    async def _finish(self, keys: Sequence[TopicPartition]) -> None:
        """Stores the targets as assignments. If the store cannot write, that is tried again later."""
        context = self._context
        topics: dict[str, list[TopicPartition]] = {}
        kept = {key: context.finishing.pop(key) for key in keys}
        for key in keys:
            topics.setdefault(key.topic, []).append(key)
        groups = []
        pace = Pace()
        for name in topics:
            states = context.stored_states(name)
            groups.append([await self._changes.assignment(name, states)])
            if pace.step_ends(len(states)):
                await asyncio.sleep(0)
        outcomes = dict(zip(topics, await self._store.pipeline(groups), strict=True))
        async for key in others_between(keys, COST):
            if isinstance(outcomes[key.topic], MetadataStoreError):
                context.finishing[key] = kept[key]
                continue
            for broker in kept[key].awaited:
                self._dropped(key, broker)
            self._requests.publish(key)
            log.debug("reassignment finished", partition=str(key))
        for name, outcome in outcomes.items():
            if isinstance(outcome, MetadataStoreError):
                log.error("reassignments not finished", topic=name, reason=str(outcome))
                self._try_later()
            else:
                log.info("reassignments finished", count=len(topics[name]), partitions=_first(topics[name]))
        await self._forget_requested(keys)

    # The entry of Kafka's old tools

    async def _forget_requested(self, keys: Iterable[TopicPartition]) -> None:
        done = [key for key in keys if key in self._requested and key not in self._context.finishing]
        for key in done:
            del self._requested[key]
        if done:
            await self._store_requested()

    async def _store_requested(self) -> None:
        operation: Operation = Delete(znodes.REASSIGN_PARTITIONS)
        if self._requested:
            operation = Set(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(self._requested))
        try:
            await self._store.multi([operation])
        except NoEntry:
            return
        except MetadataStoreError as error:
            line = log.info if has_lost_connection(error) else log.error
            line("requested reassignments not updated", reason=str(error))


def _first(keys: Sequence[TopicPartition]) -> list[str]:
    return [str(key) for key in keys[:MOST_NAMED]]

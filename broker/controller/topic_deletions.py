"""Deletes topics, over several events.

    (A) A topic to be deleted is marked in the store first (`/admin/delete_topics/T`), so that the next controller
        completes its deletion.
    (B) All brokers hear that the topic is gone (leader -2), and those with a replica are asked to delete it. When all
        have answered, everything about the topic is removed from the store, and its name is free. Nobody could tell a
        broker of the deletion later. What is too long for one transaction is removed in pieces (`pieces.py`): first
        the states, in the end the topic with its mark (A).
    (C) A replica whose broker is dead, or that could not be deleted, halts the deletion. It is tried again when a
        broker with a replica of the topic starts. A topic whose deletion is halted is gone for clients all the same.
    (D) A reassignment of the topic ends with its deletion, which concerns all its replicas, old and new ones. Those
        that a broker was already asked to delete are asked for again, because only the answer to a request of this
        deletion counts (`control_requests.py`).

    replica      ONLINE, NEW, DELETION_INELIGIBLE -> OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL
                                                             -> DELETION_INELIGIBLE (C)

A topic may have very many partitions, and a request very many topics: all of this is done in steps.

Source: Kafka's `TopicDeletionManager`; but Kafka halts a deletion during a reassignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

import structlog

from odradek.broker.background.stepwise import Pace, in_steps, others_between
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext, Deletion
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_changes import storage_error
from odradek.broker.controller.partition_states import PartitionPhase, is_new
from odradek.broker.controller.pieces import Piece, pieces_of
from odradek.broker.controller.replica_states import ReplicaPhase
from odradek.broker.controller.topic_operations import topic_removal
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    Create,
    Delete,
    EntryExists,
    HasChildren,
    MetadataStoreError,
    NoEntry,
    Outcome,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

STARTED, SUCCESSFUL = ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_SUCCESSFUL
INELIGIBLE, OFFLINE = ReplicaPhase.DELETION_INELIGIBLE, ReplicaPhase.OFFLINE

COST = 5
"""The cost of a partition, in items of a step."""
READ_AT_A_TIME = 100
"""How many entries are asked for their children together."""

log = structlog.get_logger("controller")


class TopicDeletions:
    """Deletes topics of `context`. `try_later` calls `resume` again after a while, when the store could not write."""

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        requests: ControlRequests,
        try_later: Callable[[], object],
    ) -> None:
        self._store = store
        self._context = context
        self._requests = requests
        self._try_later = try_later
        self._waiting: list[tuple[list[str], asyncio.Future[bool]]] = []

    async def mark(self, names: Iterable[str]) -> dict[str, ProtocolError]:
        """Marks topics (A) and starts deleting them. Returns the topics that cannot be deleted, and why."""
        context = self._context
        refused = {
            name: ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'")
            for name in names
            if context.topic(name) is None
        }
        marked = [name for name in dict.fromkeys(names) if name not in refused and name not in context.deletions]
        outcomes = await self._store.pipeline([[Create(znodes.deletion_path(name))] for name in marked])
        for name, outcome in zip(marked, outcomes, strict=True):
            if isinstance(outcome, MetadataStoreError) and not isinstance(outcome, EntryExists):
                refused[name] = storage_error(outcome)
        await self.enqueue([name for name in marked if name not in refused])
        await self.resume()
        return refused

    async def enqueue(self, names: Iterable[str]) -> None:
        """Notes topics that are marked, with all their replicas (D)."""
        pace = Pace()
        for name in names:
            for state in self._context.stored_states(name):
                self._enqueue(TopicPartition(name, state.partition), state)
                if pace.step_ends(COST):
                    await asyncio.sleep(0)
            self._context.deletions[name] = Deletion()

    def _enqueue(self, key: TopicPartition, stored: PartitionState) -> None:
        self._context.put_state(key, stored)
        self._context.finishing.pop(key, None)
        for broker in stored.replicas:
            phase = self._context.replica_phase(key, broker)
            if phase is ReplicaPhase.NON_EXISTENT:
                self._context.move_replica(key, broker, ReplicaPhase.NEW)
            elif phase is STARTED:
                self._context.move_replica(key, broker, INELIGIBLE)

    async def resume(self) -> None:
        """Completes the deletions whose replicas are all deleted, and starts those that are not halted."""
        deleted, startable = [], []
        pace = Pace()
        for name, deletion in list(self._context.deletions.items()):
            phases = await self._phases(name, pace)
            if phases <= {SUCCESSFUL} and not deletion.untold:
                deleted.append(name)
            elif STARTED not in phases and not deletion.is_halted and not deletion.untold:
                startable.append(name)
        await self._remove(deleted)
        for name in startable:
            await self._start(name, pace)
        self._notify()

    async def told(self, broker_id: int, partitions: Mapping[str, int]) -> None:
        """Notes that a broker knows of the deletion of so many partitions of these topics (B)."""
        found = []
        for name, count in partitions.items():
            deletion = self._context.deletions.get(name)
            if deletion is not None and count == await self._known_partitions(name):
                deletion.untold.pop(broker_id, None)
                found.append(deletion)
        if not all(deletion.untold for deletion in found):
            await self.resume()

    async def _known_partitions(self, name: str) -> int:
        """The number of partitions that brokers know."""
        count = 0
        async for state in others_between(self._context.stored_states(name)):
            count += not is_new(state)
        return count

    async def brokers_died(self, brokers: Collection[int]) -> None:
        """Halts the deletions that wait for these brokers (C)."""
        pace = Pace()
        for name, deletion in list(self._context.deletions.items()):
            for broker in brokers:
                deletion.untold.pop(broker, None)
            for key, broker in self._context.replicas_in(name, STARTED):
                if broker in brokers:
                    self._context.move_replica(key, broker, INELIGIBLE)
                    deletion.is_halted = True
                if pace.step_ends():
                    await asyncio.sleep(0)
        await self.resume()

    async def brokers_started(self, brokers: Collection[int]) -> None:
        """Tries the deletions again that were halted for these brokers (C). They hear of all others that are under way
        (B): what they know may be from an earlier registration.
        """
        async for name, deletion in others_between(list(self._context.deletions.items())):
            replicas = (state.replicas for state in self._context.stored_states(name))
            if any(broker in brokers for assigned in replicas for broker in assigned):
                deletion.is_halted = False
        await self.resume()
        pace = Pace()
        for name in [name for name, deletion in self._context.deletions.items() if deletion.is_started]:
            self._await_knowledge(name, brokers)
            for key in self._context.partitions_of(name):
                self._requests.publish(key)
                if pace.step_ends():
                    await asyncio.sleep(0)

    async def stopped(self, broker_id: int, errors: dict[TopicPartition, ErrorCode]) -> None:
        """Notes what a broker has answered to the request to delete replicas."""
        is_concerned = False
        async for key, error in others_between(errors.items()):
            deletion = self._context.deletions.get(key.topic)
            if deletion is None or self._context.replica_phase(key, broker_id) is not STARTED:
                continue
            is_concerned = True
            self._context.move_replica(key, broker_id, INELIGIBLE if error else SUCCESSFUL)
            if error:
                deletion.is_halted = True
                log.error("replica not deleted", partition=str(key), broker=broker_id, error=error.name)
        if is_concerned:
            await self.resume()

    async def ended(self, names: Iterable[str]) -> bool:
        """Returns True when these topics are deleted, or their deletion is halted (C); False if another controller has
        to complete it.
        """
        left = self._left(names)
        if left:
            future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.append((left, future))
            return await future
        return True

    def close(self) -> None:
        """Ends the waiting."""
        for _, future in self._waiting:
            if not future.done():
                future.set_result(False)

    def _left(self, names: Iterable[str]) -> list[str]:
        deletions = self._context.deletions
        return [name for name in names if name in deletions and not deletions[name].is_halted]

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for names, future in waiting:
            left = self._left(names)
            if left:
                self._waiting.append((left, future))
            elif not future.done():
                future.set_result(True)

    async def _phases(self, name: str, pace: Pace) -> set[ReplicaPhase]:
        found = set()
        for key in self._context.partitions_of(name):
            state = self._context.state(key)
            for broker in () if state is None else state.replicas:
                found.add(self._context.replica_phase(key, broker))
            if pace.step_ends():
                await asyncio.sleep(0)
        return found

    async def _start(self, name: str, pace: Pace) -> None:
        context, deletion = self._context, self._context.deletions[name]
        self._await_knowledge(name, context.brokers)
        for key in context.partitions_of(name):
            if not deletion.is_started:
                context.move_partition(key, PartitionPhase.OFFLINE)
                context.move_partition(key, PartitionPhase.NON_EXISTENT)
            self._requests.publish(key)
            state = context.state(key)
            for broker in () if state is None else state.replicas:
                self._start_replica(key, broker, deletion)
            if pace.step_ends(COST):
                await asyncio.sleep(0)
        deletion.is_started = True
        log.info("topic deletion started", topic=name, is_halted=deletion.is_halted)

    def _await_knowledge(self, name: str, brokers: Iterable[int]) -> None:
        """The deletion ends when these brokers know of it (B)."""
        if not all(map(is_new, self._context.stored_states(name))):  # otherwise no broker ever heard of the topic
            self._context.deletions[name].untold.update(dict.fromkeys(brokers))

    def _start_replica(self, key: TopicPartition, broker: int, deletion: Deletion) -> None:
        context = self._context
        if context.replica_phase(key, broker) is SUCCESSFUL:
            return
        if context.replica_phase(key, broker) is not OFFLINE:
            context.move_replica(key, broker, OFFLINE)
        if context.is_present(broker, key):
            context.move_replica(key, broker, STARTED)
            self._requests.stop(broker, key, delete=True)
        else:
            context.move_replica(key, broker, INELIGIBLE)
            deletion.is_halted = True

    async def _remove(self, names: Sequence[str]) -> None:
        """Removes topics from the store and the context (B). If the store cannot write, they are removed later."""
        configs = await self._store.entries([znodes.topic_config_path(name) for name in names])
        pieces: dict[str, list[Piece]] = {}
        async for name, config in others_between(zip(names, configs, strict=True), COST):
            with_state = [state.partition for state in self._context.stored_states(name) if not is_new(state)]
            pieces[name] = await pieces_of(topic_removal(name, with_state, has_config=config is not None))
        outcomes = iter(await self._store.pipeline([piece for some in pieces.values() for piece in some]))
        for name, some in pieces.items():
            outcome = _first_error(list(islice(outcomes, len(some))))
            if isinstance(outcome, NoEntry | HasChildren):
                outcome = _first_error(await self._store.pipeline(await self._all_entries_of(name)))
            if outcome is not None:
                log.error("topic deletion postponed", topic=name, reason=str(outcome))
                self._try_later()
                continue
            async for key, broker in others_between(self._context.replicas_in(name, SUCCESSFUL), COST):
                self._context.move_replica(key, broker, ReplicaPhase.NON_EXISTENT)
            partitions = self._context.partition_count(name)
            await in_steps(self._context.remove_topic(name))
            log.info("topic deleted", topic=name, partitions=partitions)

    async def _all_entries_of(self, name: str) -> list[Piece]:
        """Deletes whatever the store has of a topic, if it is not what the controller knows: other tools have changed
        it, or an earlier attempt has failed in the middle.
        """
        level = [znodes.topic_path(name)]
        below: list[str] = []
        while level:
            below += level
            level = await self._children_of(level)
        last = [znodes.topic_path(name), znodes.topic_config_path(name), znodes.deletion_path(name)]
        paths = [*reversed(below[1:]), *last]
        found = await self._store.entries(paths)
        existing = [path for path, entry in zip(paths, found, strict=True) if entry is not None]
        end = [Delete(path) for path in existing if path in last]
        return await pieces_of([*([Delete(path)] for path in existing if path not in last), end])

    async def _children_of(self, paths: Sequence[str]) -> list[str]:
        children = []
        for start in range(0, len(paths), READ_AT_A_TIME):
            some = paths[start : start + READ_AT_A_TIME]
            for path, names in zip(some, await asyncio.gather(*map(self._names_below, some)), strict=True):
                children += [f"{path}/{name}" for name in names]
        return children

    async def _names_below(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoEntry:
            return []


def _first_error(outcomes: Iterable[Outcome]) -> MetadataStoreError | None:
    return next((outcome for outcome in outcomes if isinstance(outcome, MetadataStoreError)), None)

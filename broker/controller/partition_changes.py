"""Stores new states of partitions: decided, written, and then known to the controller.

    (A) Each partition is written by itself, all of them together in one pipeline: a conflict of one does not hold up
        the others. Changes of the assignment are written by topic, because all partitions of a topic share its entry.
        If the states of a topic's partitions with its entry are too long for one transaction, the states are written
        first, each by itself, and then the entry. Each of those states is valid with the old assignment, too: in sync
        are only replicas that were in sync before. So after a crash in between, the reassignment has not begun.
    (B) A partition that was changed by someone else (BadVersion) is read again and decided again.
    (C) If the store cannot write, the partition keeps its state, and the outcome is KAFKA_STORAGE_ERROR. If only the
        entry of the topic was not written (A), the partition keeps its replicas, and its state is the new one.

Source: Kafka's `KafkaZkClient.updateLeaderAndIsr`, `PartitionStateMachine.electLeaderForPartitions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import structlog

from odradek.broker.background.stepwise import Pace, in_steps, others_between
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_states import is_new
from odradek.broker.controller.pieces import fits
from odradek.broker.controller.topic_operations import assignment_too_long
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    LONGEST_ENTRY,
    BadVersion,
    Create,
    EntryExists,
    MetadataStoreError,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
    StoreUnavailable,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

ATTEMPTS = 3
COST = 5
"""The cost of deciding and encoding a partition, in items of a step."""

Decision = Callable[[TopicPartition, PartitionState], PartitionState | None]
"""Returns the next state, or None if nothing changes. Raises ProtocolError."""
Outcome = PartitionState | ProtocolError | None

log = structlog.get_logger("controller")


class _Group(NamedTuple):
    """What is written together: partitions of one topic. `entry_follows`: their assignment is written later (A)."""

    states: dict[TopicPartition, PartitionState]
    operations: list[Operation]
    entry_follows: bool = False


class PartitionChanges:
    """Changes the partitions in `context`."""

    def __init__(self, store: FencedStore, context: ControllerContext) -> None:
        self._store = store
        self._context = context

    async def change(
        self,
        keys: Iterable[TopicPartition],
        decide: Decision,
        *,
        assignments: Mapping[TopicPartition, PartitionState] | None = None,
    ) -> dict[TopicPartition, Outcome]:
        """Decides and stores. Returns, per partition, its new state, None if it did not change, or the error.

        With `assignments`, the topics' entries are written, too (A). A decision may enter a partition there, if the
        assignment to be stored is not that of its new state. An entry that is too long is refused: POLICY_VIOLATION.
        """
        outcomes: dict[TopicPartition, Outcome] = {}
        ahead: dict[str, dict[TopicPartition, PartitionState]] = {}
        remaining: Collection[TopicPartition] = list(keys)
        if not remaining:
            return outcomes
        for attempt in range(ATTEMPTS):
            groups = await self._groups(remaining, decide, assignments, outcomes, attempt)
            results = await self._store.pipeline([group.operations for group in groups])
            stale: list[TopicPartition] = []
            async for group, result in others_between(zip(groups, results, strict=True), COST):
                if isinstance(result, BadVersion | EntryExists | NoEntry):
                    stale += group.states
                    outcomes.update(dict.fromkeys(group.states, storage_error(result)))
                elif isinstance(result, MetadataStoreError):
                    outcomes.update(dict.fromkeys(group.states, storage_error(result)))
                else:
                    self._stored(group, result, outcomes, ahead)
            if not stale:
                break
            remaining = await self._read_again(stale)
        if assignments is not None:
            await self._entries_follow(ahead, assignments, outcomes)
        async for key, outcome in others_between(outcomes.items(), COST):
            if isinstance(outcome, ProtocolError) and outcome.code is ErrorCode.KAFKA_STORAGE_ERROR:
                log.error("partition not changed", partition=str(key), reason=str(outcome))
        return outcomes

    async def _groups(
        self,
        keys: Iterable[TopicPartition],
        decide: Decision,
        assignments: Mapping[TopicPartition, PartitionState] | None,
        outcomes: dict[TopicPartition, Outcome],
        attempt: int,
    ) -> list[_Group]:
        groups: list[_Group] = []
        async for key in others_between(keys, COST):
            before = self._context.state(key)
            if before is None:
                message = "The partition does not exist."
                outcomes[key] = ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                continue
            outcomes[key] = None
            try:
                after = decide(key, before)
            except ProtocolError as refusal:
                outcomes[key] = refusal
                continue
            if after is None:
                continue
            if is_new(before):
                operations = await self._creation(key, after, look=attempt > 0)
            else:
                path = znodes.state_path(key.topic, key.partition)
                operations = [Set(path, znodes.encode_state(after), before.partition_epoch)]
            groups.append(_Group({key: after}, operations))
        return groups if assignments is None else await self._with_entries(groups, assignments, outcomes)

    async def _with_entries(
        self,
        groups: Iterable[_Group],
        assignments: Mapping[TopicPartition, PartitionState],
        outcomes: dict[TopicPartition, Outcome],
    ) -> list[_Group]:
        """Joins the groups of each topic, and adds its entry, if all of it fits into one transaction (A)."""
        by_topic: dict[str, list[_Group]] = {}
        for group in groups:
            (key,) = group.states
            by_topic.setdefault(key.topic, []).append(group)
        joined: list[_Group] = []
        pace = Pace()
        for name, some in by_topic.items():
            if pace.step_ends(len(self._context.partitions_of(name))):
                await asyncio.sleep(0)
            states = {key: state async for group in others_between(some) for key, state in group.states.items()}
            entry = await self._entry(name, states, assignments)
            operations = [operation async for group in others_between(some) for operation in group.operations]
            operations.append(entry)
            if entry.data is not None and len(entry.data) > LONGEST_ENTRY:
                outcomes.update(dict.fromkeys(states, assignment_too_long(name, len(entry.data))))
            elif fits(operations):
                joined.append(_Group(states, operations))
            else:
                joined += [group._replace(entry_follows=True) async for group in others_between(some)]
        return joined

    async def _entry(
        self,
        name: str,
        after: Mapping[TopicPartition, PartitionState],
        assignments: Mapping[TopicPartition, PartitionState],
    ) -> Set:
        """Stores the assignment of a topic some of whose partitions change."""
        stored = self._context.stored_states(name)
        states = {state.partition: state async for state in others_between(stored)}
        async for key, state in others_between(after.items()):
            states[key.partition] = assignments.get(key, state)
        return await self.assignment(name, states.values())

    async def _entries_follow(
        self,
        ahead: Mapping[str, Mapping[TopicPartition, PartitionState]],
        assignments: Mapping[TopicPartition, PartitionState],
        outcomes: dict[TopicPartition, Outcome],
    ) -> None:
        """Writes the entries of topics whose partitions' states are written already (A)."""
        groups = [[await self._entry(name, states, assignments)] for name, states in ahead.items()]
        for states, result in zip(ahead.values(), await self._store.pipeline(groups), strict=True):
            async for key, state in others_between(states.items(), COST):
                if isinstance(result, MetadataStoreError):
                    outcomes[key] = storage_error(result)
                else:
                    self._context.put_state(key, state)
                    outcomes[key] = state

    async def assignment(self, name: str, states: Iterable[PartitionState]) -> Set:
        """Stores the replicas of a topic's partitions."""
        topic = self._context.topic(name)
        assert topic is not None, "its partitions are in the context"
        return Set(znodes.topic_path(name), await in_steps(znodes.topic_encoding(topic.topic_id, states)))

    async def _creation(self, key: TopicPartition, state: PartitionState, *, look: bool) -> list[Operation]:
        """Creates the state's entry and its parent. `look`: some of the parents exist, others not. A partition that
        remains without leader has no entry.
        """
        if is_new(state):
            return []
        parents = [znodes.partitions_path(key.topic), znodes.partition_path(key.topic, key.partition)]
        missing = parents[1:]
        if look:
            found = await self._store.entries(parents)
            missing = [path for path, entry in zip(parents, found, strict=True) if entry is None]
        path = znodes.state_path(key.topic, key.partition)
        return [*(Create(parent) for parent in missing), Create(path, znodes.encode_state(state))]

    def _stored(
        self,
        group: _Group,
        results: list[str | int | None],
        outcomes: dict[TopicPartition, Outcome],
        ahead: dict[str, dict[TopicPartition, PartitionState]],
    ) -> None:
        by_path = {operation.path: result for operation, result in zip(group.operations, results, strict=True)}
        for key, state in group.states.items():
            version = by_path.get(znodes.state_path(key.topic, key.partition))
            stored = state._replace(partition_epoch=version) if isinstance(version, int) else state
            outcomes[key] = stored
            if group.entry_follows:
                ahead.setdefault(key.topic, {})[key] = stored
                stored = self._with_old_replicas(key, stored)
            self._context.put_state(key, stored)

    def _with_old_replicas(self, key: TopicPartition, state: PartitionState) -> PartitionState:
        before = self._context.state(key)
        assert before is not None, "it was decided on"
        return state._replace(replicas=before.replicas, adding=before.adding, removing=before.removing)

    async def _read_again(self, keys: list[TopicPartition]) -> list[TopicPartition]:
        """Reads the states of partitions (B). Returns those that could be read."""
        try:
            entries = await self._store.entries([znodes.state_path(key.topic, key.partition) for key in keys])
        except StoreUnavailable:
            return []
        found = []
        async for key, entry in others_between(zip(keys, entries, strict=True), COST):
            known = self._context.state(key)
            if known is None or (entry is None and not is_new(known)):
                continue
            if entry is not None:
                try:
                    state = znodes.parse_state(key.topic, key.partition, known.replicas, entry.data, entry.version)
                    await check_author(self._store, key, state, self._context.epoch)
                except MetadataStoreError as error:
                    log.error("partition left alone", partition=str(key), reason=str(error))
                    continue
                self._context.put_state(key, state._replace(adding=known.adding, removing=known.removing))
            found.append(key)
        return found


async def check_author(store: FencedStore, key: TopicPartition, state: PartitionState, epoch: int) -> None:
    """Raises ControllerMoved if the state was written by the successor of the controller of this epoch. If there is no
    successor, the state is damaged: StoreDamaged.
    """
    if state.controller_epoch > epoch:
        await store.check_epoch()
        path = znodes.state_path(key.topic, key.partition)
        raise StoreDamaged(path, f"has the controller epoch {state.controller_epoch}, which is yet to come")


def storage_error(error: Exception) -> ProtocolError:
    """The error returned to a client when the store fails."""
    return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

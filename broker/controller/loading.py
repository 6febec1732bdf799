"""Loads what a controller must know from the metadata store: everything when it is elected, and later the topics that
tools create there (`stored_topics.py`).

    (A) A topic whose entry or one of whose partitions' states is damaged is left alone: it is logged, and nothing about
        it is sent or changed. All other topics are served.
    (B) A partition without a state was created by a controller that stopped before it chose a leader, or by a tool.
    (C) If a broker is registered since the state of a partition was stored, it has restarted: its predecessor was what
        the state knows, and no controller has seen it go.
    (D) A mark of deletion without a topic is removed. If delete.topic.enable is false, all marks are.
    (E) A topic without an id, as Kafka before 2.8 and its tools write it, gets one.

Source: Kafka's `KafkaController.initializeControllerContext`, `processTopicIds`, `fetchTopicDeletionsInProgress`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from uuid import UUID

import structlog

from odradek.broker.background.stepwise import Pace, others_between
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_changes import check_author
from odradek.broker.controller.partition_states import is_new, unled
from odradek.broker.metadata.kafka_uuid import random_uuid, uuid_text
from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.broker.metadata.topic_names import topic_name_fault
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Delete,
    Entry,
    MetadataStoreError,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
    StoreUnavailable,
    Watch,
)
from odradek.broker.metadata_store.znodes import TopicAssignment
from odradek.protocol.topic_partition import TopicPartition

ENTRIES_AT_A_TIME = 1000
COST = 10
"""The cost of parsing a topic or a partition, in items of a step."""

log = structlog.get_logger("controller")


Restarted = dict[TopicPartition, tuple[int, ...]]
States = dict[TopicPartition, PartitionState | StoreDamaged]


async def load_topics(
    store: FencedStore, context: ControllerContext, entries: Mapping[str, Entry | None], source: random.Random
) -> Restarted:
    """Loads topics, given their entries, with the states of their partitions. Returns the partitions with several
    replicas of which some are on brokers that have restarted (C).

    A topic whose entry changes meanwhile is not loaded. Raises ControllerMoved and StoreUnavailable.
    """
    assignments = await _assignments(context, entries)
    ids = await _ids(store, context, entries, assignments, source)
    all_keys = (TopicPartition(name, number) for name in ids for number in assignments[name].replicas)
    keys = {key: assignments[key.topic] async for key in others_between(all_keys)}
    states: dict[str, dict[int, PartitionState]] = {name: {} for name in ids}
    outcomes, restarted = await load_states(store, context, keys)
    async for key, outcome in others_between(outcomes.items()):
        if isinstance(outcome, StoreDamaged):
            leave_alone(context, key.topic, outcome)
        else:
            states[key.topic][key.partition] = outcome
    for name, topic_id in ids.items():
        if name not in context.damaged:
            context.put_topic(TopicMetadata(name, topic_id, states[name]))
    return {key: brokers for key, brokers in restarted.items() if key.topic not in context.damaged}


async def _assignments(context: ControllerContext, entries: Mapping[str, Entry | None]) -> dict[str, TopicAssignment]:
    assignments: dict[str, TopicAssignment] = {}
    pace = Pace()
    for name, entry in entries.items():
        try:
            if entry is not None:
                assignments[name] = parse_assignment(name, entry)
        except StoreDamaged as error:
            leave_alone(context, name, error)
        if pace.step_ends(COST + (len(assignments[name].replicas) if name in assignments else 0)):
            await asyncio.sleep(0)
    return assignments


async def load_states(
    store: FencedStore, context: ControllerContext, keys: Mapping[TopicPartition, TopicAssignment]
) -> tuple[States, Restarted]:
    """Returns the states of partitions, given their topics' assignments, or the damage; and those of (C)."""
    states: States = {}
    restarted: Restarted = {}
    paths = [znodes.state_path(key.topic, key.partition) async for key in others_between(keys)]
    found = await read_entries(store, paths)
    async for key, entry in others_between(zip(keys, found, strict=True), COST):
        try:
            state = assigned(key, keys[key], entry)
            await check_author(store, key, state, context.epoch)
        except StoreDamaged as error:
            states[key] = error
            continue
        if is_new(state):
            state = state._replace(controller_epoch=context.epoch)
        states[key] = state
        if entry is not None and len(state.replicas) > 1 and (since := _registered_since(entry, state, context)):
            restarted[key] = since
    return states, restarted


async def load_deletions(
    store: FencedStore, context: ControllerContext, *, is_enabled: bool, watch: Watch | None
) -> list[str]:
    """Returns the topics that are marked for deletion (D), and watches the marks."""
    marked = await store.children(znodes.DELETE_TOPICS, watch)
    found = [name for name in marked if is_enabled and context.topic(name) is not None]
    void = [name for name in marked if name not in found and (not is_enabled or name not in context.damaged)]
    if void:
        log.warning("marks of deletion removed", topics=void, is_enabled=is_enabled)
    await store.pipeline([[Delete(znodes.deletion_path(name))] for name in void])
    return found


async def read_entries(store: FencedStore, paths: list[str]) -> list[Entry | None]:
    """Returns the entries at very many paths."""
    entries: list[Entry | None] = []
    for start in range(0, len(paths), ENTRIES_AT_A_TIME):
        entries += await store.entries(paths[start : start + ENTRIES_AT_A_TIME])
    return entries


def parse_assignment(name: str, entry: Entry) -> TopicAssignment:
    """Parses the entry of a topic. Raises StoreDamaged, also for a name and for replicas that no topic can have."""
    path = znodes.topic_path(name)
    if (fault := topic_name_fault(name)) is not None:
        raise StoreDamaged(path, fault)
    assignment = znodes.parse_topic(name, entry.data)
    if not assignment.replicas:
        raise StoreDamaged(path, "has no partitions")
    if not all(assignment.replicas.values()):
        raise StoreDamaged(path, "has a partition without replicas")
    return assignment


def assigned(key: TopicPartition, assignment: TopicAssignment, entry: Entry | None) -> PartitionState:
    """Returns the stored state of a partition (B), with its assigned replicas. Raises StoreDamaged."""
    replicas = assignment.replicas[key.partition]
    if entry is None:
        state = unled(key.partition, replicas, 0)
    else:
        state = znodes.parse_state(key.topic, key.partition, replicas, entry.data, entry.version)
    adding, removing = (field.get(key.partition, ()) for field in (assignment.adding, assignment.removing))
    return state._replace(adding=adding, removing=removing)


def with_id(name: str, assignment: TopicAssignment, topic_id: UUID, version: int) -> Operation:
    """Writes the id into an entry that has none (E)."""
    keys = (TopicPartition(name, number) for number in assignment.replicas)
    states = [assigned(key, assignment, None) for key in keys]
    return Set(znodes.topic_path(name), znodes.encode_topic(topic_id, states), version)


def leave_alone(context: ControllerContext, name: str, error: Exception) -> None:
    """Notes that a topic is damaged (A)."""
    if name not in context.damaged:
        context.damaged[name] = None
        log.error("topic left alone, its metadata is damaged", topic=name, reason=str(error))


async def _ids(
    store: FencedStore,
    context: ControllerContext,
    entries: Mapping[str, Entry | None],
    assignments: Mapping[str, TopicAssignment],
    source: random.Random,
) -> dict[str, UUID]:
    """Returns the topics' ids, of which those that were missing are stored (E)."""
    ids = {name: assignment.topic_id for name, assignment in assignments.items()}
    new = {name: random_uuid(source) for name, topic_id in ids.items() if topic_id is None}
    groups = []
    async for name, topic_id in others_between(new.items(), COST):
        entry = entries[name]
        assert entry is not None, "it has an assignment"
        groups.append([with_id(name, assignments[name], topic_id, entry.version)])
    for (name, topic_id), outcome in zip(new.items(), await store.pipeline(groups), strict=True):
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        if isinstance(outcome, BadVersion | NoEntry):
            log.warning("topic not loaded, it changes", topic=name, reason=str(outcome))
        elif isinstance(outcome, MetadataStoreError):
            leave_alone(context, name, outcome)
        else:
            ids[name] = topic_id
            log.info("topic id assigned", topic=name, topic_id=uuid_text(topic_id))
    return {name: topic_id for name, topic_id in ids.items() if topic_id is not None}


def _registered_since(entry: Entry, state: PartitionState, context: ControllerContext) -> tuple[int, ...]:
    brokers = context.brokers
    return tuple(broker for broker in state.replicas if broker in brokers and brokers[broker].epoch > entry.modified)

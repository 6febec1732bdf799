"""Loads what a new controller must know from the metadata store.

    (A) A topic whose entry or one of whose partitions' states is damaged, or that has no id, is left alone: it is
        logged, and nothing about it is sent or changed. All other topics are served.
    (B) A partition without a state was created by a controller that stopped before it chose a leader.
    (C) If a broker is registered since the state of a partition was stored, it has restarted: its predecessor was what
        the state knows, and no controller has seen it go.
    (D) A mark of deletion without a topic is removed. If delete.topic.enable is false, all marks are.

Source: Kafka's `KafkaController.initializeControllerContext`, `fetchTopicDeletionsInProgress`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from odradek.broker.background.stepwise import Pace, others_between
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import ControllerMoved, FencedStore
from odradek.broker.controller.partition_states import is_new, unled
from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Delete, Entry, StoreDamaged, Watch
from odradek.broker.metadata_store.znodes import TopicAssignment
from odradek.protocol.topic_partition import TopicPartition

ENTRIES_AT_A_TIME = 1000
COST = 10
"""The cost of parsing a topic or a partition, in items of a step."""

log = structlog.get_logger("controller")


Restarted = dict[TopicPartition, tuple[int, ...]]


async def load_topics(store: FencedStore, context: ControllerContext) -> Restarted:
    """Loads all topics with the states of their partitions. Returns the partitions with several replicas of which some
    are on brokers that have restarted (C).
    """
    names = await store.children(znodes.TOPICS)
    assignments: dict[str, TopicAssignment] = {}
    entries = await _read(store, [znodes.topic_path(name) for name in names])
    pace = Pace()
    for name, entry in zip(names, entries, strict=True):
        try:
            if entry is not None:
                assignments[name] = _assignment(name, entry)
                if pace.step_ends(COST + len(assignments[name].replicas)):
                    await asyncio.sleep(0)
        except StoreDamaged as error:
            _leave_alone(context, name, error)
    keys = [TopicPartition(name, number) for name, topic in assignments.items() for number in topic.replicas]
    states: dict[str, dict[int, PartitionState]] = {name: {} for name in assignments}
    restarted: Restarted = {}
    entries = await _read(store, [znodes.state_path(key.topic, key.partition) for key in keys])
    async for key, entry in others_between(zip(keys, entries, strict=True), COST):
        try:
            state = _state(key, assignments[key.topic], entry)
        except StoreDamaged as error:
            _leave_alone(context, key.topic, error)
            continue
        if state.controller_epoch > context.epoch:
            raise ControllerMoved(f"{key} was changed by the controller of epoch {state.controller_epoch}")
        if is_new(state):
            state = state._replace(controller_epoch=context.epoch)
        states[key.topic][key.partition] = state
        if entry is not None and len(state.replicas) > 1 and (since := _registered_since(entry, state, context)):
            restarted[key] = since
    for name, assignment in assignments.items():
        if name not in context.damaged:
            assert assignment.topic_id is not None, "checked with the topic's entry"
            context.put_topic(TopicMetadata(name, assignment.topic_id, states[name]))
    log.info("metadata loaded", topics=len(assignments) - len(context.damaged), partitions=len(keys))
    return {key: brokers for key, brokers in restarted.items() if key.topic not in context.damaged}


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


async def _read(store: FencedStore, paths: list[str]) -> list[Entry | None]:
    entries: list[Entry | None] = []
    for start in range(0, len(paths), ENTRIES_AT_A_TIME):
        entries += await store.entries(paths[start : start + ENTRIES_AT_A_TIME])
    return entries


def _assignment(name: str, entry: Entry) -> TopicAssignment:
    assignment = znodes.parse_topic(name, entry.data)
    if assignment.topic_id is None:
        path = znodes.topic_path(name)
        raise StoreDamaged(path, "has no topic id: this release does not read metadata of Kafka before 2.8")
    _check_replicas(name, assignment.replicas.values())
    return assignment


def _check_replicas(name: str, replicas: Iterable[tuple[int, ...]]) -> None:
    if not all(replicas):
        raise StoreDamaged(znodes.topic_path(name), "has a partition without replicas")


def _state(key: TopicPartition, assignment: TopicAssignment, entry: Entry | None) -> PartitionState:
    replicas = assignment.replicas[key.partition]
    if entry is None:
        state = unled(key.partition, replicas, 0)
    else:
        state = znodes.parse_state(key.topic, key.partition, replicas, entry.data, entry.version)
    adding, removing = (field.get(key.partition, ()) for field in (assignment.adding, assignment.removing))
    return state._replace(adding=adding, removing=removing)


def _registered_since(entry: Entry, state: PartitionState, context: ControllerContext) -> tuple[int, ...]:
    brokers = context.brokers
    return tuple(broker for broker in state.replicas if broker in brokers and brokers[broker].epoch > entry.modified)


def _leave_alone(context: ControllerContext, name: str, error: StoreDamaged) -> None:
    if name not in context.damaged:
        context.damaged[name] = None
        log.error("topic left alone, its metadata is damaged", topic=name, reason=str(error))

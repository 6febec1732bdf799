"""Topics and partitions that tools write straight into the metadata store. The controller finds them when it is
elected, and by watches of `/brokers/topics` and of the entry of each topic.

    change                                        what the controller does
    --------------------------------------------  --------------------------------------------------------------------
    a new topic                                   gives it an id if it has none, elects leaders, sends the roles
    more partitions in the entry of a topic       the same for these partitions
    more partitions, but the topic is deleted     writes the entry as it was
    the entry has lost its id                     writes the id again: brokers know the topic by it
    the entry of a topic that was damaged         if it is readable now, the topic is a new one
    the entry vanishes                            forgets the topic; its replicas stay where they are, as in Kafka
    anything else                                 nothing: only reassignments change the replicas of a partition

The controller's own changes arrive in the same way, after it has noted them in its context: it finds nothing new.
A store that belongs to one broker is not watched.

Source: Kafka's `KafkaController` (`processTopicChange`, `processPartitionModifications`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import structlog

from odradek.broker.background.stepwise import finished, others_between
from odradek.broker.controller.broker_changes import BrokerChanges
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.loading import (
    Restarted,
    load_states,
    load_topics,
    parse_assignment,
    read_entries,
    with_id,
)
from odradek.broker.controller.partition_states import is_new
from odradek.broker.controller.watches import Watches
from odradek.broker.metadata.metadata_cache import TopicMetadata
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    Create,
    Entry,
    EntryExists,
    MetadataStoreError,
    Operation,
    Set,
    StoreDamaged,
)
from odradek.broker.metadata_store.znodes import TopicAssignment
from odradek.protocol.topic_partition import TopicPartition

WATCHED_AT_A_TIME = 200

log = structlog.get_logger("controller")


class StoredTopics:
    """`is_watched`: others may change the store. `on_change` is called after changes: then call `changed`."""

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        requests: ControlRequests,
        brokers: BrokerChanges,
        source: random.Random,
        *,
        is_watched: bool,
        on_change: Callable[[], object],
    ) -> None:
        self._store = store
        self._context = context
        self._requests = requests
        self._brokers = brokers
        self._random = source
        self._is_watched = is_watched
        self._watches = Watches(on_change)

    async def load(self) -> Restarted:
        """Loads all topics of a new controller; see `load_topics`."""
        names = await self._names()
        restarted = await load_topics(self._store, self._context, await self._read(names), self._random)
        metadata = self._context.metadata
        log.info("metadata loaded", topics=metadata.topic_count, partitions=metadata.partition_count)
        return restarted

    async def changed(self) -> list[str]:
        """Reacts to the changes since the last call, or since `load`. Returns the topics that are new."""
        names = await self._names()
        self._forget_all_but(names)
        unread = [name async for name in others_between(names) if not self._watches.has(znodes.topic_path(name))]
        new: dict[str, Entry] = {}
        for name, entry in (await self._read(unread)).items():
            if entry is None:
                continue
            topic = self._context.topic(name)
            if topic is None:
                self._context.damaged.pop(name, None)
                new[name] = entry
            else:
                await self._modified(topic, entry)
        return await self._added(new) if new else []

    async def _names(self) -> list[str]:
        watch = self._watches.of(znodes.TOPICS) if self._is_watched else None
        return await self._store.children(znodes.TOPICS, watch)

    async def _read(self, names: Sequence[str]) -> dict[str, Entry | None]:
        paths = [znodes.topic_path(name) for name in names]
        if not self._is_watched:
            return dict(zip(names, await read_entries(self._store, paths), strict=True))
        entries: list[Entry | None] = []
        for start in range(0, len(paths), WATCHED_AT_A_TIME):
            entries += await self._store.watched(paths[start : start + WATCHED_AT_A_TIME], self._watches.of)
        return dict(zip(names, entries, strict=True))

    def _forget_all_but(self, names: Sequence[str]) -> None:
        stored = set(names)
        context = self._context
        for name in context.metadata.topic_names():
            if name not in stored and name not in context.deletions:
                log.warning("topic forgotten, its entry in the store has vanished", topic=name)
                finished(context.remove_topic(name))
        for name in [name for name in context.damaged if name not in stored]:
            del context.damaged[name]

    # New topics

    async def _added(self, entries: Mapping[str, Entry]) -> list[str]:
        await load_topics(self._store, self._context, entries, self._random)
        found = [name for name in entries if self._context.topic(name) is not None]
        if found:
            log.info("topics found in the store", topics=found)
            await self._make_parents(found)
            await self._begin([key for name in found for key in self._context.partitions_of(name)])
        return found

    async def _make_parents(self, names: Sequence[str]) -> None:
        """Creates the parents of the partitions. Tools do not."""
        groups: list[list[Operation]] = [[Create(znodes.partitions_path(name))] for name in names]
        for outcome in await self._store.pipeline(groups):
            if isinstance(outcome, MetadataStoreError) and not isinstance(outcome, EntryExists):
                log.error("topic not prepared", reason=str(outcome))

    async def _begin(self, keys: Sequence[TopicPartition]) -> None:
        """Elects the leaders of partitions that are new to this controller, and sends their roles."""
        async for key in others_between(keys):
            state = self._context.state(key)
            assert state is not None, "it was loaded"
            self._context.load_phases(key, state)
            if not is_new(state):
                self._requests.lead(state.replicas, key, is_new=True)
                self._requests.publish(key)
        await self._brokers.settle()

    # More partitions

    async def _modified(self, topic: TopicMetadata, entry: Entry) -> None:
        try:
            assignment = parse_assignment(topic.name, entry)
        except StoreDamaged as error:
            log.error("change of a topic ignored", topic=topic.name, reason=str(error))
            return
        added = [number for number in assignment.replicas if number not in topic.partitions]
        if added and topic.name in self._context.deletions:
            log.warning("partitions not added, the topic is being deleted", topic=topic.name, partitions=added)
            states = self._context.stored_states(topic.name)
            data = znodes.encode_topic(topic.topic_id, states)
            await self._write(Set(znodes.topic_path(topic.name), data, entry.version))
            return
        if assignment.topic_id is None:
            log.warning("topic id written again", topic=topic.name)
            await self._write(with_id(topic.name, assignment, topic.topic_id, entry.version))
        elif assignment.topic_id != topic.topic_id:
            log.error("topic id in the store is another one", topic=topic.name)
        if added:
            await self._add_partitions(topic.name, assignment, added)

    async def _add_partitions(self, name: str, assignment: TopicAssignment, added: Sequence[int]) -> None:
        keys = {TopicPartition(name, number): assignment for number in added}
        states, _ = await load_states(self._store, self._context, keys)
        damage = [str(state) for state in states.values() if isinstance(state, StoreDamaged)]
        if damage:
            log.error("partitions not added", topic=name, partitions=added, reason=damage[0])
            return
        for key, state in states.items():
            assert not isinstance(state, StoreDamaged), "there is no damage"
            self._context.put_state(key, state)
        log.info("partitions found in the store", topic=name, partitions=added)
        await self._make_parents([name])
        await self._begin(list(states))

    async def _write(self, operation: Operation) -> None:
        """If the entry has changed again, the next change is read after this one."""
        try:
            await self._store.multi([operation])
        except MetadataStoreError as error:
            log.warning("topic not written", path=operation.path, reason=str(error))

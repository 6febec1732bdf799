"""Changes of partitions and topics in the metadata store, read from its transactions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.znodes import TopicAssignment
from odradek.protocol.topic_partition import TopicPartition

STATE_PATH = re.compile(rf"{znodes.TOPICS}/([^/]+)/partitions/(\d+)/state")
TOPIC_PATH = re.compile(rf"{znodes.TOPICS}/([^/]+)")
MARK_PATH = re.compile(rf"{znodes.DELETE_TOPICS}/([^/]+)")

Entries = Mapping[str, Entry | None]


class Assignment(NamedTuple):
    """The replicas of a partition, those that are being added and removed among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after it."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class StoredChanges(NamedTuple):
    """What a transaction has changed, before and after; None: it is not there. `marks`: the topics whose mark of
    deletion has come (True) or gone (False)."""

    states: dict[TopicPartition, tuple[PartitionState | None, PartitionState | None]]
    topics: dict[str, tuple[TopicAssignment | None, TopicAssignment | None]]
    marks: dict[str, bool]


def changes_between(before: Entries, after: Entries) -> StoredChanges:
    """Reads the changed entries."""
    changes = StoredChanges({}, {}, {})
    for path, later in after.items():
        earlier = before[path]
        if matched := STATE_PATH.fullmatch(path):
            key = TopicPartition(matched[1], int(matched[2]))
            changes.states[key] = (_state(key, earlier), _state(key, later))
        elif matched := TOPIC_PATH.fullmatch(path):
            changes.topics[matched[1]] = (_topic(matched[1], earlier), _topic(matched[1], later))
        elif (matched := MARK_PATH.fullmatch(path)) and (earlier is None) != (later is None):
            changes.marks[matched[1]] = later is not None
    return changes


def assignment_of(topic: TopicAssignment, number: int) -> Assignment | None:
    """The assignment of a partition; None if the topic has no such partition."""
    if number not in topic.replicas:
        return None
    return Assignment(topic.replicas[number], topic.adding.get(number, ()), topic.removing.get(number, ()))


def _state(key: TopicPartition, entry: Entry | None) -> PartitionState | None:
    if entry is None:
        return None
    return znodes.parse_state(key.topic, key.partition, (), entry.data, entry.version)


def _topic(name: str, entry: Entry | None) -> TopicAssignment | None:
    return None if entry is None else znodes.parse_topic(name, entry.data)

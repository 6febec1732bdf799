"""Which topics, partitions, groups and transactions of a request a fault selects.

A selection splits a request in two: the selected items, and the rest. It knows Kafka's requests by the names of their
fields, so it needs no code for a single API. Where a request names something once for all (JoinGroup its group), the
request is selected as a whole. Where an array is null, which means all topics, the request is selected, and the
response shows the items.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from odradek.protocol.schema import ZERO_UUID, Field, Message
from odradek.protocol.wire_codes import ConfigResourceType

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional_id"
ARRAYS = {
    "topics": TOPIC,
    "topic_data": TOPIC,
    "topic_partitions": TOPIC,
    "topic_states": TOPIC,
    "topic_names": TOPIC,
    "subscribed_topic_names": TOPIC,
    "v3_and_below_topics": TOPIC,
    "resources": TOPIC,
    "groups": GROUP,
    "groups_names": GROUP,
    "group_ids": GROUP,
    "transactional_ids": TRANSACTIONAL_ID,
}
"""The arrays whose items are, or name, such a thing."""
NESTED = ("groups", "transactions", "markers", "dirs")
"""The arrays of structures with such arrays."""
TOPIC_NAMES = ("name", "topic", "topic_name", "resource_name")
PARTITION_ARRAYS = ("partitions", "partition_data", "partition_indexes", "partition_states")
PARTITION_NUMBERS = ("partition", "partition_index", "index", "partition_id")
SCALARS = {GROUP: ("group_id",), TRANSACTIONAL_ID: ("transactional_id", "v3_and_below_transactional_id")}
KEY_TYPES = {GROUP: 0, TRANSACTIONAL_ID: 1}
"""FindCoordinator's."""

DESCRIBED_TOPICS = (MetadataRequest.MetadataRequestTopic, DescribeTopicPartitionsRequest.TopicRequest)
"""Topics of requests whose responses have the partitions."""

TOPIC_ID, PARTITION = "topic_id", "partition"

TopicName = Callable[[UUID], str | None]
"""The name of a topic by its id, None if there is no such topic."""


class Split(NamedTuple):
    chosen: Any
    """The request with the selected items only."""
    rest: Any
    """The request with all others; None if there are none."""
    is_open: bool = False
    """Whether the response shows what is selected: the request names all topics."""


class Selection:
    """What is selected; None: anything. A topic may be given by its name or its id."""

    def __init__(
        self,
        topic: str | None = None,
        topic_id: UUID | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        if partition is not None and topic is None and topic_id is None:
            raise ValueError("a partition is selected together with its topic")
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        wanted: dict[str, Any] = {GROUP: group, TRANSACTIONAL_ID: transactional_id, TOPIC: topic or topic_id}
        self._wanted = wanted
        self._kinds = frozenset(kind for kind, value in wanted.items() if value is not None)

    @property
    def selects_topics(self) -> bool:
        return TOPIC in self._kinds

    def split(self, request: Any, topic_name: TopicName) -> Split | None:
        """Splits a request; None if nothing in it is selected."""
        if not self._kinds:
            return Split(request, None)
        chosen, rest = self._split(request, self._kinds, topic_name)
        if chosen is not None:
            return Split(chosen, rest)
        return Split(request, None, is_open=True) if self._names_all(request) else None

    def has_topic(self, item: Any, topic_name: TopicName) -> bool:
        """Whether a structure is about the selected topic."""
        if self.topic is None and self.topic_id is None:
            return True
        topic_id = getattr(item, "topic_id", ZERO_UUID)
        if self.topic_id is not None and topic_id != self.topic_id:
            return False
        return self.topic is None or self.topic == topic_of(item, topic_name)

    def has_partition(self, item: Any) -> bool:
        """Whether a partition, or its number, is the selected one."""
        return self.partition is None or self.partition == partition_of(item)

    def _split(self, structure: Any, kinds: frozenset[str], topic_name: TopicName) -> tuple[Any, Any]:
        """Returns the structure with what is selected, and with the rest; None where nothing is."""
        left = set(kinds)
        for kind in kinds:
            named = _scalar(structure, kind)
            if named is not None and named != self._wanted[kind]:
                return None, structure
            if named is not None:
                left.discard(kind)
        if not left:
            return structure, None
        chosen, rest = copy.copy(structure), copy.copy(structure)
        any_chosen = any_rest = False
        for field in structure.__schema__.fields:
            items = getattr(structure, field.attribute)
            array = _kind_of(structure, field)
            if not items or (array is None and field.attribute not in NESTED):
                continue
            halves = [self._split_item(item, array, frozenset(left), topic_name) for item in items]
            of_chosen = [one for one, _ in halves if one is not None]
            of_rest = [other for _, other in halves if other is not None]
            setattr(chosen, field.attribute, of_chosen)
            setattr(rest, field.attribute, of_rest)
            any_chosen = any_chosen or bool(of_chosen)
            any_rest = any_rest or bool(of_rest)
        return (chosen if any_chosen else None), (rest if any_rest or not any_chosen else None)

    def _split_item(self, item: Any, kind: str | None, kinds: frozenset[str], topic_name: TopicName) -> tuple[Any, Any]:
        if isinstance(item, str):
            is_chosen = kinds == {kind} and item == self._wanted.get(kind or "") and self.partition is None
            return (item, None) if is_chosen else (None, item)
        if kind != TOPIC:
            return self._split(item, kinds, topic_name)
        if getattr(item, "resource_type", None) == ConfigResourceType.GROUP:
            return (item, None) if kinds == {GROUP} and item.resource_name == self._wanted[GROUP] else (None, item)
        if kinds != {TOPIC} or not _is_topic(item) or not self.has_topic(item, topic_name):
            return None, item
        return (item, None) if self.partition is None else self._split_partitions(item)

    def _split_partitions(self, topic: Any) -> tuple[Any, Any]:
        attribute = next((name for name in PARTITION_ARRAYS if hasattr(topic, name)), None)
        if attribute is None:  # only the response has partitions
            return (topic, None) if isinstance(topic, DESCRIBED_TOPICS) else (None, topic)
        partitions = getattr(topic, attribute)
        chosen = [partition for partition in partitions if self.has_partition(partition)]
        rest = [partition for partition in partitions if not self.has_partition(partition)]
        return (
            _with(topic, attribute, chosen) if chosen else None,
            _with(topic, attribute, rest) if rest or not chosen else None,
        )

    def _names_all(self, request: Any) -> bool:
        """Whether the request names all topics, and what else is selected."""
        if TOPIC not in self._kinds:
            return False
        others = self._kinds - {TOPIC}
        if isinstance(request, MetadataRequest):
            return not others and request.topics is None
        if isinstance(request, DescribeTopicPartitionsRequest):
            return not others and not request.topics
        if not others and any(
            ARRAYS.get(field.attribute) == TOPIC and getattr(request, field.attribute) is None
            for field in request.__schema__.fields
        ):
            return True
        return self._group_names_all(request, others)

    def _group_names_all(self, request: Any, others: frozenset[str]) -> bool:
        """OffsetFetch names all topics of a group."""
        groups = getattr(request, "groups", None) or ([request] if getattr(request, "group_id", "") else [])
        wanted = self._wanted[GROUP]
        return others <= {GROUP} and any(
            getattr(group, "topics", ()) is None and wanted in (None, group.group_id)
            for group in groups
            if not isinstance(group, str)
        )


def topic_of(item: Any, topic_name: TopicName) -> str | None:
    """Returns the name of the topic that a structure is about."""
    for attribute in TOPIC_NAMES:
        name = getattr(item, attribute, None)
        if name:
            return str(name)
    topic_id = getattr(item, "topic_id", ZERO_UUID)
    return topic_name(topic_id) if topic_id != ZERO_UUID else None


def partition_of(item: Any) -> int | None:
    """Returns the number of a partition, which may be one itself."""
    if isinstance(item, int):
        return item
    return next((getattr(item, name) for name in PARTITION_NUMBERS if hasattr(item, name)), None)


def _kind_of(structure: Any, field: Field) -> str | None:
    if isinstance(structure, FindCoordinatorRequest):
        if field.attribute != "coordinator_keys":
            return None
        return next((kind for kind, number in KEY_TYPES.items() if number == structure.key_type), None)
    return ARRAYS.get(field.attribute)


def _is_topic(item: Any) -> bool:
    """The resources of settings are topics, brokers, groups and others."""
    return getattr(item, "resource_type", ConfigResourceType.TOPIC) == ConfigResourceType.TOPIC


def _scalar(structure: Any, kind: str) -> str | None:
    if isinstance(structure, FindCoordinatorRequest):
        return structure.key if structure.key and structure.key_type == KEY_TYPES.get(kind) else None
    return next((value for name in SCALARS.get(kind, ()) if (value := getattr(structure, name, None))), None)


def _with(structure: Any, attribute: str, value: Any) -> Any:
    changed = copy.copy(structure)
    setattr(changed, attribute, value)
    return changed


@cache
def what_requests_name(message_class: type[Message]) -> frozenset[str]:
    """Returns what requests of a class can be selected by: `topic`, `topic_id`, `partition`, `group` and
    `transactional_id`, in any of its versions.
    """
    found: set[str] = set(KEY_TYPES) if message_class is FindCoordinatorRequest else set()
    if message_class in (MetadataRequest, DescribeTopicPartitionsRequest):
        found.add(PARTITION)  # those of its response
    for field in message_class.__schema__.fields:
        found |= {kind for kind, names in SCALARS.items() if field.attribute in names}
        if field.attribute in ARRAYS:
            found.add(ARRAYS[field.attribute])
        if field.attribute == "resources":
            found.add(GROUP)  # which have settings
        if field.attribute in PARTITION_ARRAYS:
            found.add(PARTITION)
        if field.attribute == TOPIC_ID:
            found.add(TOPIC_ID)
        if field.struct_class is not None and (field.attribute in ARRAYS or field.attribute in NESTED):
            found |= what_requests_name(field.struct_class)
    return frozenset(found)

"""Faults of Fetch. Its partitions are those of the request and of the session that it continues (KIP-227).

(A) An error code stands in the selected partitions. The broker handles the request, without waiting for records,
    so that the session goes on; then the partitions are replaced. The codes of sessions fail the request.
(B) A corrupt batch: the last byte of the first batch of each selected partition is changed, so that its checksum
    is wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from odradek.broker.replica.fetch.fetch_session import FetchSession
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.schema import ZERO_UUID
from odradek.testing.faults.selection import Selection, TopicName

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_IDS = 13
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
BATCH_LENGTH = slice(8, 12)
LOG_OVERHEAD = 12


class Fetched(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int


def fetched(request: Any, session: FetchSession | None, topic_name: TopicName) -> list[Fetched]:
    """Returns what a request fetches: its own partitions and those of the session that it continues."""
    found = dict.fromkeys(_named(request.topics, "partitions", topic_name))
    if session is not None:
        found |= dict.fromkeys(
            Fetched(topic_name(target.topic_id) or "", target.topic_id, target.partition)
            if target.topic_id != ZERO_UUID
            else Fetched(target.topic_partition.topic, ZERO_UUID, target.partition)
            for target in session.targets.values()
        )
        for forgotten in _named(request.forgotten_topics_data, "partitions", topic_name):
            found.pop(forgotten, None)
    return list(found)


def chosen_of(items: Selection, all_fetched: list[Fetched]) -> list[Fetched]:
    """Returns those that are selected."""
    return [each for each in all_fetched if is_chosen(items, each)]


def is_chosen(items: Selection, each: Fetched) -> bool:
    return (
        items.topic in (None, each.topic)
        and items.topic_id in (None, each.topic_id)
        and items.partition in (None, each.partition)
    )


def without_waiting(request: Any) -> Any:
    """Returns a request that is answered at once."""
    changed = copy.copy(request)
    changed.max_wait_ms = changed.min_bytes = 0
    return changed


def put_error(response: Any, chosen: list[Fetched], code: ErrorCode) -> None:
    """Case A: replaces the selected partitions, and adds those that have nothing new."""
    if response.error_code:
        return
    topics = {(topic.topic, topic.topic_id): topic for topic in response.responses}
    for each in chosen:
        key = ("", each.topic_id) if each.topic_id != ZERO_UUID else (each.topic, ZERO_UUID)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchResponse.FetchableTopicResponse(topic=key[0], topic_id=key[1])
            response.responses.append(topic)
        failed = FetchResponse.PartitionData(
            partition_index=each.partition, error_code=int(code), high_watermark=-1, records=b""
        )
        others = [partition for partition in topic.partitions if partition.partition_index != each.partition]
        topic.partitions = [*others, failed]


def corruptible(response: Any, items: Selection, topic_name: TopicName) -> list[Any]:
    """Returns the selected partitions of a response that have records."""
    return [
        partition
        for topic in response.responses
        for partition in topic.partitions
        if partition.records and items.has_topic(topic, topic_name) and items.has_partition(partition)
    ]


def corrupt(partition: Any) -> None:
    """Case B."""
    records = bytearray(partition.records)
    end = min(LOG_OVERHEAD + int.from_bytes(records[BATCH_LENGTH], "big"), len(records))
    records[end - 1] ^= 0xFF
    partition.records = bytes(records)


def _named(topics: Any, attribute: str, topic_name: TopicName) -> Iterator[Fetched]:
    for topic in topics or ():
        name = topic_name(topic.topic_id) or "" if topic.topic_id != ZERO_UUID else topic.topic
        for partition in getattr(topic, attribute):
            number = partition if isinstance(partition, int) else partition.partition
            yield Fetched(name, topic.topic_id, number)

"""Compares the brokers' topics with those that the pipeline has read: deleted, recreated, or truncated at the start.

A topic that was deleted and recreated has the same name and the same offsets, but another id and other records
(KIP-516). Continuing at the old offsets would silently skip new records. So the ids are compared at each start, and
again for each batch, after its records were read and before any of them is committed: a topic that still has the old id
then had it while it was read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.admin import admin_client
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.settings import Settings

log = structlog.get_logger("pipeline.topics")

PATIENCE_S = 60.0
PAUSE_S = 0.5
ATTEMPT_MS = 10_000
NO_ID = "00000000-0000-0000-0000-000000000000"
GONE = 3
"""UNKNOWN_TOPIC_OR_PARTITION."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at one point in time: its id ("" if the brokers have no ids), and the start and end offset of each
    partition.
    """

    id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


Topics = Mapping[str, Topic]


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic that was read: its id, and the end offsets of its partitions when they were last requested."""

    id: str
    ends: Mapping[int, int]


def ends_of(topics: Topics) -> Offsets:
    """Returns the end offsets of the topics."""
    return {name: topic.ends for name, topic in topics.items()}


def known_topics(topics: Topics) -> dict[str, KnownTopic]:
    """Returns the persistent part of topics."""
    return {name: KnownTopic(topic.id, topic.ends) for name, topic in topics.items()}


def known_topics_text(known: Mapping[str, KnownTopic]) -> str:
    """Formats known topics as JSON: {"topic": {"id": "...", "ends": {"0": 12}}}."""
    return json.dumps({name: {"id": one.id, "ends": dict(one.ends)} for name, one in sorted(known.items())})


def known_topics_of(content: Mapping[str, Any]) -> dict[str, KnownTopic]:
    """Parses the JSON of `known_topics_text`. Raises ValueError, KeyError, TypeError, AttributeError."""
    return {
        name: KnownTopic(str(one["id"]), {int(number): int(end) for number, end in one["ends"].items()})
        for name, one in content.items()
    }


class TopicVanished(PipelineError):
    """A topic that was read does not exist any more."""


class TopicRecreated(PipelineError):
    """Known topics have new ids. `topics` are their names."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__(
            f"{', '.join(topics)}: deleted and recreated since it was read, with other records at the same offsets",
            "set on-recreated-topic to continue, which reads it from the start and counts the lost offsets",
        )
        self.topics = topics


def look(
    settings: Settings,
    matches: Callable[[Collection[str]], Collection[str]],
    *,
    patience_s: float = PATIENCE_S,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Topic]:
    """Returns the existing topics of the settings. `matches` selects the names that topics-pattern matches. Waits up to
    `patience_s` for brokers that do not respond. Raises PipelineError."""
    until, is_logged = now() + patience_s, False
    while True:
        try:
            with admin_client(settings, ATTEMPT_MS if patience_s else 1000) as admin:
                return _look(admin, settings, matches)
        except (KafkaError, OSError) as error:
            if now() >= until:
                raise PipelineError(
                    f"{settings.bootstrap_server} does not describe the topics: {type(error).__name__}: {error}",
                    "check bootstrap-server, and that the broker is running",
                ) from error
            if not is_logged:
                log.warning("waiting for brokers", servers=settings.bootstrap_server, seconds=patience_s)
                is_logged = True
        sleep(PAUSE_S)


def _look(
    admin: KafkaAdminClient, settings: Settings, matches: Callable[[Collection[str]], Collection[str]]
) -> dict[str, Topic]:
    if settings.topics:
        described = admin.describe_topics(list(settings.topics))
    else:
        there = {one["name"]: one for one in admin.describe_topics() if not one["is_internal"]}
        described = [there[name] for name in matches(list(there))]
    found = {one["name"]: one for one in described if one["error_code"] != GONE}
    partitions = [
        TopicPartition(name, part["partition_index"]) for name, one in found.items() for part in one["partitions"]
    ]
    level = READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED
    starts, ends = (
        admin.list_partition_offsets(dict.fromkeys(partitions, spec), isolation_level=level) if partitions else {}
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return {
        name: Topic(_id(one), _of_topic(name, starts), _of_topic(name, ends)) for name, one in sorted(found.items())
    }


def _id(description: Mapping[str, Any]) -> str:
    text = str(description.get("topic_id") or "")
    return "" if text == NO_ID else text


def _of_topic(name: str, offsets: Mapping[TopicPartition, Any]) -> dict[int, int]:
    return {place.partition: found.offset for place, found in sorted(offsets.items()) if place.topic == name}


def compare_ids(known: Mapping[str, KnownTopic], topics: Topics) -> None:
    """Raises TopicVanished or TopicRecreated if a known topic does not exist, or has another id."""
    vanished = sorted(set(known) - set(topics))
    if vanished:
        raise TopicVanished(
            f"{', '.join(vanished)}: read before, but deleted now",
            "recreate it (on-recreated-topic then applies), or set another name for the pipeline",
        )
    recreated = [name for name, one in sorted(known.items()) if one.id and topics[name].id not in ("", one.id)]
    if recreated:
        raise TopicRecreated(recreated)


def compare_offsets(next_offsets: Offsets, topics: Topics) -> None:
    """Raises PipelineError if a next offset to read is before the start or after the end of the log."""
    problems = []
    for name, partitions in sorted(next_offsets.items()):
        for number, offset in sorted(partitions.items()):
            topic = topics.get(name)
            if topic is None or number not in topic.starts:
                problems.append(f"{name}-{number} was deleted")
            elif offset < topic.starts[number]:
                problems.append(f"{name}-{number}: offsets {offset} to {topic.starts[number] - 1} were deleted")
            elif offset > topic.ends[number]:
                problems.append(f"{name}-{number}: read up to {offset}, but the log ends at {topic.ends[number]}")
    if problems:
        raise PipelineError(
            "; ".join(problems), "set on-data-loss to continue, which reads what is left and counts the loss"
        )

"""The topics as the brokers have them, against those that a query has read: deleted, made again, cut at the start.

A topic that was deleted and made again has its name and its offsets, but another id and other records (KIP-516). To
go on at the old offsets would skip the new records without a word; so the ids are compared at each start, and again
for each batch, after its records were read and before any of them is committed: what has the old id then was the old
topic while it was read.
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
    """A topic at one moment: its id ("" where brokers have none), and each partition's first offset and next one."""

    id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


Topics = Mapping[str, Topic]


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """What is remembered of a topic that was read: its id, and where its partitions ended when last looked at."""

    id: str
    ends: Mapping[int, int]


def ends_of(topics: Topics) -> Offsets:
    """Where the topics end."""
    return {name: topic.ends for name, topic in topics.items()}


def known_topics(topics: Topics) -> dict[str, KnownTopic]:
    """What is to be remembered of topics."""
    return {name: KnownTopic(topic.id, topic.ends) for name, topic in topics.items()}


def known_topics_text(known: Mapping[str, KnownTopic]) -> str:
    """As JSON: {"topic": {"id": "...", "ends": {"0": 12}}}."""
    return json.dumps({name: {"id": one.id, "ends": dict(one.ends)} for name, one in sorted(known.items())})


def known_topics_of(content: Mapping[str, Any]) -> dict[str, KnownTopic]:
    """From such JSON. Raises ValueError, KeyError, TypeError, AttributeError."""
    return {
        name: KnownTopic(str(one["id"]), {int(number): int(end) for number, end in one["ends"].items()})
        for name, one in content.items()
    }


class TopicVanished(PipelineError):
    """A topic that was read is not there."""


class TopicRecreated(PipelineError):
    """Topics of known names have other ids; `topics` are their names."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__(
            f"{', '.join(topics)}: deleted and created again since it was read, with other records at the same offsets",
            "set on-recreated-topic to continue, which reads it from its beginning and counts what was lost",
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
    """The topics of the settings that exist; `matches` tells those that topics-pattern names. Waits `patience_s` for
    brokers that do not answer. Raises PipelineError."""
    until, told = now() + patience_s, False
    while True:
        try:
            with admin_client(settings, ATTEMPT_MS if patience_s else 1000) as admin:
                return _look(admin, settings, matches)
        except (KafkaError, OSError) as error:
            if now() >= until:
                raise PipelineError(
                    f"{settings.bootstrap_server} does not tell of the topics: {type(error).__name__}: {error}",
                    "check bootstrap-server, and that the broker runs",
                ) from error
            if not told:
                log.warning("the brokers do not answer; waiting", servers=settings.bootstrap_server, seconds=patience_s)
                told = True
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
    """Raises TopicVanished or TopicRecreated where a topic is not the one that is known by that name."""
    vanished = sorted(set(known) - set(topics))
    if vanished:
        raise TopicVanished(
            f"{', '.join(vanished)}: read until now, and gone",
            "create it again (on-recreated-topic says what happens then), or take another name for the pipeline",
        )
    recreated = [name for name, one in sorted(known.items()) if one.id and topics[name].id not in ("", one.id)]
    if recreated:
        raise TopicRecreated(recreated)


def compare_offsets(next_offsets: Offsets, topics: Topics) -> None:
    """Raises PipelineError where the next offset to read is not in the log any more, or not in it yet."""
    problems = []
    for name, partitions in sorted(next_offsets.items()):
        for number, offset in sorted(partitions.items()):
            topic = topics.get(name)
            if topic is None or number not in topic.starts:
                problems.append(f"{name}-{number} is gone")
            elif offset < topic.starts[number]:
                problems.append(f"{name}-{number}: offsets {offset} to {topic.starts[number] - 1} are gone")
            elif offset > topic.ends[number]:
                problems.append(f"{name}-{number}: read up to {offset}, and the log ends at {topic.ends[number]}")
    if problems:
        raise PipelineError(
            "; ".join(problems), "set on-data-loss to continue, which goes on with what is there and counts the loss"
        )

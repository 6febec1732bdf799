"""Determines the offsets that the next batch reads, from the position and the current topics.

Each partition continues at the offset in the ledger. A new partition starts at starting-offsets if nothing was read
before, otherwise at its log start. A recreated topic is read from its log start, and the unread offsets of the old
topic are lost. A batch takes at most max-offsets-per-trigger of the unread offsets, the same share of each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.position import Position
from odradek.pipeline.kafka.chunks import Chunk
from odradek.pipeline.kafka.inputs import refuse_beyond
from odradek.pipeline.kafka.offsets import Offsets, offsets_of
from odradek.pipeline.kafka.topics import TopicRecreated, Topics, compare_ids, compare_offsets, known_topics
from odradek.pipeline.segments.options import EARLIEST, LATEST
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.plan import Plan, judging_settings
from odradek.pipeline.state.selection import REDRIVE, Selection

INGEST, BACKFILL = "ingest", "backfill"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where each partition of the topics continues, and how many offsets are lost. `notes`: messages for users."""

    offsets: Offsets
    lost: int = 0
    notes: tuple[str, ...] = ()


def beginning(position: Position, topics: Topics, settings: Settings) -> Beginning:
    """Returns where to continue. Raises PipelineError for deleted offsets and recreated topics, depending on the
    settings.
    """
    if not position.done:
        first = first_offsets(settings.starting_offsets, topics)
        refuse_beyond(first, topics)
        if settings.on_data_loss == "fail":
            compare_offsets(first, topics)
        return Beginning(first)
    recreated = recreated_topics(position, topics, settings)
    found: dict[str, dict[int, int]] = {}
    for name, topic in topics.items():
        done = {} if name in recreated else position.done.get(name, {})
        found[name] = {number: done.get(number, first) for number, first in topic.starts.items()}
    gone = _gone_partitions(position, topics, recreated)
    if settings.on_data_loss == "fail":
        compare_offsets({**found, **gone}, topics)
    lost = {name: _unread(position, name) for name in recreated}
    notes = tuple(
        f"{name}: recreated, so read from the start; {count} offsets are lost" for name, count in lost.items()
    )
    return Beginning(_within(found, topics), sum(lost.values()), notes)


def next_plan(
    position: Position, topics: Topics, settings: Settings, job: str, now: datetime, until: Offsets
) -> Plan | None:
    """Returns the plan of the next batch. None if there is nothing to read. `until`: the maximum end offset of each
    partition; others are not read. Raises PipelineError."""
    start = beginning(position, topics, settings)
    ends = {
        name: {number: min(end, topics[name].ends.get(number, end)) for number, end in parts.items()}
        for name, parts in until.items()
        if name in topics
    }
    waiting = Chunk(
        {name: {n: start.offsets[name][n] for n in parts if n in start.offsets[name]} for name, parts in ends.items()},
        ends,
    ).without_empty()
    if not waiting.start and not start.lost:
        return None
    taken = waiting.skipping_lost(topics).first(settings.max_offsets_per_trigger or waiting.offsets())
    there = _named(start.offsets, until, position.done)
    end = {
        name: {number: taken.end.get(name, {}).get(number, offset) for number, offset in parts.items()}
        for name, parts in {**position.done, **there}.items()
    }
    return Plan(
        number=position.number,
        job=job,
        planned_at=now,
        start=there,
        end=end,
        topics={**position.topics, **known_topics(topics)},
        lost=start.lost,
        watermark=_watermark(position, settings, job),
        newest_event_time=position.newest_event_time,
        judging=judging_settings(settings),
    )


def redrive_plan(position: Position, settings: Settings, selection: Selection, now: datetime) -> Plan:
    """Returns the plan of a batch that reads dead letters, and no topic. As in history, whose rows are older than the
    newest ones, none of them is late. Raises PipelineError."""
    return Plan(
        number=position.number,
        job=REDRIVE,
        planned_at=now,
        start={},
        end=position.done,
        topics=position.topics,
        lost=0,
        watermark=None,
        newest_event_time=position.newest_event_time,
        judging=judging_settings(settings),
        redrive=selection,
    )


def _named(offsets: Offsets, *by: Offsets) -> dict[str, dict[int, int]]:
    """Returns the offsets of the partitions that are in any of `by`."""
    found = {
        name: {number: offset for number, offset in parts.items() if any(number in one.get(name, {}) for one in by)}
        for name, parts in offsets.items()
    }
    return {name: parts for name, parts in found.items() if parts}


def _watermark(position: Position, settings: Settings, job: str) -> datetime | None:
    """Returns the time before which events are late. None for history, whose partitions are of different times."""
    if job == BACKFILL or not settings.dedup_keys or position.newest_event_time is None:
        return None
    return position.newest_event_time - duration(settings.watermark_delay, "watermark-delay")


def recreated_topics(position: Position, topics: Topics, settings: Settings) -> list[str]:
    """Returns the topics whose id has changed. Raises PipelineError if on-recreated-topic is fail."""
    known = {name: one for name, one in position.topics.items() if name in topics or is_wanted(name, settings)}
    try:
        compare_ids(known, topics)
    except TopicRecreated as error:
        if settings.on_recreated_topic == "fail":
            raise
        return error.topics
    return []


def is_wanted(name: str, settings: Settings) -> bool:
    """Whether the settings name a topic that was read. True if Python cannot compile topics-pattern."""
    if settings.topics:
        return name in settings.topics
    return settings.pattern is None or settings.pattern.fullmatch(name) is not None


def first_offsets(starting: str, topics: Topics) -> dict[str, dict[int, int]]:
    """Returns the start of each partition by starting-offsets; by default the earliest offset. Raises PipelineError."""
    given: Mapping[str, Mapping[int, int]] = {}
    if starting == "latest":
        return {name: dict(topic.ends) for name, topic in topics.items()}
    if starting != "earliest":
        try:
            given = offsets_of(starting)
        except (ValueError, AttributeError, TypeError) as error:
            raise PipelineError(
                f"starting-offsets {starting[:80]!r} is not earliest, latest or offsets",
                'as in {"orders": {"0": 12}}',
            ) from error
    strange = [
        f"{name}-{number}"
        for name, parts in given.items()
        for number in parts
        if name not in topics or number not in topics[name].starts
    ]
    if strange:
        raise PipelineError(f"starting-offsets has {', '.join(strange)}, which is not read", "remove it")
    found: dict[str, dict[int, int]] = {}
    for name, topic in topics.items():
        for number, first in topic.starts.items():
            offset = given.get(name, {}).get(number, EARLIEST)
            found.setdefault(name, {})[number] = {EARLIEST: first, LATEST: topic.ends[number]}.get(offset, offset)
    return found


def _unread(position: Position, name: str) -> int:
    """Returns the number of known offsets of a deleted topic that were not read."""
    done = position.done.get(name, {})
    return sum(max(0, end - done.get(number, 0)) for number, end in position.topics[name].ends.items())


def _gone_partitions(position: Position, topics: Topics, recreated: list[str]) -> dict[str, dict[int, int]]:
    """Returns the offsets of all partitions of each topic that lacks a partition that was read."""
    found = {}
    for name, parts in position.done.items():
        if name in topics and name not in recreated and set(parts) - set(topics[name].starts):
            found[name] = dict(parts)
    return found


def _within(offsets: Mapping[str, Mapping[int, int]], topics: Topics) -> dict[str, dict[int, int]]:
    """Returns the offsets, limited to the logs' ends: a truncated log continues at its new end."""
    return {
        name: {number: min(offset, topics[name].ends.get(number, offset)) for number, offset in parts.items()}
        for name, parts in offsets.items()
    }

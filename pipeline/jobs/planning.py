"""Which offsets the next batch reads, by a look at the topics.

Each partition goes on where the ledger says. One that was never read begins at starting-offsets if nothing was read
before, else at its beginning. A topic that was made again begins at its beginning, and what was not read of the old
one is lost. Of what waits a batch takes at most max-offsets-per-trigger, of each partition as large a part as of all.
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

INGEST, BACKFILL = "ingest", "backfill"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where each partition of the topics goes on, and how many offsets are gone for good. `notes`: for people."""

    offsets: Offsets
    lost: int = 0
    notes: tuple[str, ...] = ()


def beginning(position: Position, topics: Topics, settings: Settings) -> Beginning:
    """Raises PipelineError where the settings want one for offsets that are gone, and for topics made again."""
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
        f"{name}: created again, so read from the beginning; {count} offsets are lost" for name, count in lost.items()
    )
    return Beginning(_within(found, topics), sum(lost.values()), notes)


def next_plan(
    position: Position, topics: Topics, settings: Settings, job: str, now: datetime, until: Offsets
) -> Plan | None:
    """The plan of the next batch; None where nothing waits. `until`: no partition is read further; one that it does
    not name is not read. Raises PipelineError."""
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


def _named(offsets: Offsets, *by: Offsets) -> dict[str, dict[int, int]]:
    """The offsets of partitions that are in any of the others."""
    found = {
        name: {number: offset for number, offset in parts.items() if any(number in one.get(name, {}) for one in by)}
        for name, parts in offsets.items()
    }
    return {name: parts for name, parts in found.items() if parts}


def _watermark(position: Position, settings: Settings, job: str) -> datetime | None:
    """What is older comes too late. In history nothing does: its partitions are of different times."""
    if job == BACKFILL or not settings.dedup_keys or position.newest_event_time is None:
        return None
    return position.newest_event_time - duration(settings.watermark_delay, "watermark-delay")


def recreated_topics(position: Position, topics: Topics, settings: Settings) -> list[str]:
    """Those that have another id than they had. Raises PipelineError if that is not to be gone on with."""
    known = {name: one for name, one in position.topics.items() if name in topics or is_wanted(name, settings)}
    try:
        compare_ids(known, topics)
    except TopicRecreated as error:
        if settings.on_recreated_topic == "fail":
            raise
        return error.topics
    return []


def is_wanted(name: str, settings: Settings) -> bool:
    """Whether the settings name a topic that was read; one that Python cannot tell of is."""
    if settings.topics:
        return name in settings.topics
    return settings.pattern is None or settings.pattern.fullmatch(name) is not None


def first_offsets(starting: str, topics: Topics) -> dict[str, dict[int, int]]:
    """Where each partition begins, by starting-offsets; what is unsaid at the earliest. Raises PipelineError."""
    said: Mapping[str, Mapping[int, int]] = {}
    if starting == "latest":
        return {name: dict(topic.ends) for name, topic in topics.items()}
    if starting != "earliest":
        try:
            said = offsets_of(starting)
        except (ValueError, AttributeError, TypeError) as error:
            raise PipelineError(
                f"starting-offsets {starting[:80]!r} is neither earliest, latest nor offsets",
                'as in {"orders": {"0": 12}}',
            ) from error
    strange = [
        f"{name}-{number}"
        for name, parts in said.items()
        for number in parts
        if name not in topics or number not in topics[name].starts
    ]
    if strange:
        raise PipelineError(f"starting offsets are given for {', '.join(strange)}, which is not read", "leave it out")
    found: dict[str, dict[int, int]] = {}
    for name, topic in topics.items():
        for number, first in topic.starts.items():
            offset = said.get(name, {}).get(number, EARLIEST)
            found.setdefault(name, {})[number] = {EARLIEST: first, LATEST: topic.ends[number]}.get(offset, offset)
    return found


def _unread(position: Position, name: str) -> int:
    """Offsets of a topic that was deleted before they were read, as far as they were seen."""
    done = position.done.get(name, {})
    return sum(max(0, end - done.get(number, 0)) for number, end in position.topics[name].ends.items())


def _gone_partitions(position: Position, topics: Topics, recreated: list[str]) -> dict[str, dict[int, int]]:
    """Offsets of partitions that were read, and that their topic does not have any more, with the topic's others."""
    found = {}
    for name, parts in position.done.items():
        if name in topics and name not in recreated and set(parts) - set(topics[name].starts):
            found[name] = dict(parts)
    return found


def _within(offsets: Mapping[str, Mapping[int, int]], topics: Topics) -> dict[str, dict[int, int]]:
    """Offsets not beyond the logs' ends: a log that was cut goes on at its new end."""
    return {
        name: {number: min(offset, topics[name].ends.get(number, offset)) for number, offset in parts.items()}
        for name, parts in offsets.items()
    }

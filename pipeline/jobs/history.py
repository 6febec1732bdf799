"""Where history ends and the ingest begins: said once, in backfill.json, before a backfill reads its first record.

The file never changes. It names the end of each partition; the ledger says how far the backfill has come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.jobs.planning import BACKFILL, INGEST
from odradek.pipeline.jobs.position import Position
from odradek.pipeline.kafka.chunks import Chunk
from odradek.pipeline.kafka.offsets import Offsets, offsets_of, offsets_text
from odradek.pipeline.kafka.topics import KnownTopic, Topics, known_topics_of, known_topics_text
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places

NAME = "backfill.json"


@dataclass(frozen=True, slots=True)
class History:
    """What a backfill reads: from `starts` to before `ends`, of the same partitions. `topics`: as they were then."""

    starts: Offsets
    ends: Offsets
    topics: Mapping[str, KnownTopic]

    @property
    def offsets(self) -> int:
        """How many offsets it has."""
        return Chunk(self.starts, self.ends).offsets()

    def begun(self, position: Position) -> Position:
        """The position of a backfill: before its first batch, the beginning of history."""
        return position if position.done else replace(position, done=self.starts, topics=self.topics)

    def until(self, topics: Topics) -> Offsets:
        """Where it ends, but for topics that were made again: their history is over."""
        return {
            name: parts
            for name, parts in self.ends.items()
            if name in topics and topics[name].id in ("", self.topics[name].id)
        }

    def left(self, position: Position) -> Chunk:
        """What is to be read of it."""
        done, known = self.begun(position).done, self.begun(position).topics
        there = [name for name in self.starts if known[name].id == self.topics[name].id]
        starts = {
            name: {
                number: min(max(done.get(name, {}).get(number, start), start), self.ends[name][number])
                for number, start in self.starts[name].items()
            }
            for name in there
        }
        return Chunk(starts, self.ends).without_empty()


class DamagedHistory(PipelineError):
    """The record is no record."""

    def __init__(self, state: Location, why: str) -> None:
        super().__init__(f"{state / NAME}, which says where the backfill ends, {why}", f"put it back; or {ANEW}")


class UnfinishedBackfill(PipelineError):
    """An ingest is to begin where a backfill ends, and that has `left` to read."""

    def __init__(self, history: History, left: Chunk) -> None:
        super().__init__(
            f"the backfill is at {history.offsets - left.offsets()} of {history.offsets} offsets",
            "run `odradek pipeline backfill` to its end, then ingest",
        )


def read_history(state: Location) -> History | None:
    """What was written down, if anything was. Raises DamagedHistory."""
    content = state.read(NAME)
    if content is None:
        return None
    try:
        told = json.loads(content)
        starts, ends = (offsets_of(json.dumps(told[name])) for name in ("start_offsets", "end_offsets"))
        topics = known_topics_of(told["topics"])
        if set(topics) != set(starts) or any(
            not 0 <= start <= ends[name][number] for name, parts in starts.items() for number, start in parts.items()
        ):
            raise ValueError("its offsets do not follow on each other")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedHistory(state, f"is damaged ({type(error).__name__}: {error})") from error
    return History(starts, ends, topics)


def write_history(state: Location, history: History) -> History:
    """Writes it down, whole or not at all; if another job was faster, what that has written."""
    content = {
        "start_offsets": json.loads(offsets_text(history.starts)),
        "end_offsets": json.loads(offsets_text(history.ends)),
        "topics": json.loads(known_topics_text(history.topics)),
    }
    if state.create(NAME, json.dumps(content, indent=1, sort_keys=True).encode()):
        return history
    found = read_history(state)
    assert found is not None
    return found


def recorded_history(state: Location, position: Position) -> History | None:
    """The record, if there is a good one. Raises PipelineError if there was one that is needed."""
    begun = position.job == BACKFILL
    try:
        history = read_history(state)
    except DamagedHistory:
        if begun:
            raise
        state.remove(NAME)  # Nothing was done by it.
        return None
    if history is None and begun:
        raise DamagedHistory(state, "is gone")
    return history


def refuse_unfinished(places: Places, position: Position) -> None:
    """Raises PipelineError where a backfill has begun, and is not at its end."""
    if position.job == INGEST:
        return
    try:
        history = read_history(places.state)
    except DamagedHistory as error:
        if position.job == BACKFILL:
            raise
        raise PipelineError(
            error.problem, "remove it, or run `odradek pipeline backfill`, which makes it anew"
        ) from error
    if history is None:
        if position.job == BACKFILL:
            raise DamagedHistory(places.state, "is gone")
        return
    left = history.left(position)
    if left.start:
        raise UnfinishedBackfill(history, left)

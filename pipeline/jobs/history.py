"""The record of where history ends and the ingest starts: backfill.json, written before a backfill reads any record.

The file never changes. It has the end offset of each partition; the ledger has the progress of the backfill.
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
    """The range of a backfill: from `starts` (inclusive) to `ends` (exclusive), of the same partitions. `topics`: as
    they were when it was recorded.
    """

    starts: Offsets
    ends: Offsets
    topics: Mapping[str, KnownTopic]

    @property
    def offsets(self) -> int:
        """The number of offsets in the range."""
        return Chunk(self.starts, self.ends).offsets()

    def begun(self, position: Position) -> Position:
        """Returns the position of a backfill: before its first batch, the start of history."""
        return position if position.done else replace(position, done=self.starts, topics=self.topics)

    def until(self, topics: Topics) -> Offsets:
        """Returns the end offsets, without deleted and recreated topics, whose history no longer exists."""
        return {
            name: parts
            for name, parts in self.ends.items()
            if name in topics and topics[name].id in ("", self.topics[name].id)
        }

    def left(self, position: Position) -> Chunk:
        """Returns the part that is not read yet."""
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
    """backfill.json is damaged or missing."""

    def __init__(self, state: Location, why: str) -> None:
        super().__init__(f"{state / NAME}, the record of where the backfill ends, {why}", f"restore it; or {ANEW}")


class UnfinishedBackfill(PipelineError):
    """An ingest starts where a backfill ends, but the backfill still has to read `left`."""

    def __init__(self, history: History, left: Chunk) -> None:
        super().__init__(
            f"the backfill is at {history.offsets - left.offsets()} of {history.offsets} offsets",
            "run `odradek pipeline backfill` to its end, then ingest",
        )


def read_history(state: Location) -> History | None:
    """Returns the record, if there is one. Raises DamagedHistory."""
    content = state.read(NAME)
    if content is None:
        return None
    try:
        document = json.loads(content)
        starts, ends = (offsets_of(json.dumps(document[name])) for name in ("start_offsets", "end_offsets"))
        topics = known_topics_of(document["topics"])
        if set(topics) != set(starts) or any(
            not 0 <= start <= ends[name][number] for name, parts in starts.items() for number, start in parts.items()
        ):
            raise ValueError("a start offset is after its end offset")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedHistory(state, f"is damaged ({type(error).__name__}: {error})") from error
    return History(starts, ends, topics)


def write_history(state: Location, history: History) -> History:
    """Writes the record atomically. If another job was faster, returns that job's record."""
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
    """Returns the record, if there is an intact one. Raises PipelineError if a started backfill has none."""
    begun = position.job == BACKFILL
    try:
        history = read_history(state)
    except DamagedHistory:
        if begun:
            raise
        state.remove(NAME)  # No batch has used it.
        return None
    if history is None and begun:
        raise DamagedHistory(state, "is missing")
    return history


def refuse_unfinished(places: Places, position: Position) -> None:
    """Raises PipelineError if a backfill was started and is not finished."""
    if position.job == INGEST:
        return
    try:
        history = read_history(places.state)
    except DamagedHistory as error:
        if position.job == BACKFILL:
            raise
        raise PipelineError(
            error.problem, "remove it, or run `odradek pipeline backfill`, which creates it again"
        ) from error
    if history is None:
        if position.job == BACKFILL:
            raise DamagedHistory(places.state, "is missing")
        return
    left = history.left(position)
    if left.start:
        raise UnfinishedBackfill(history, left)

"""Where history ends and the ingest begins: said once, in handover.json, before a backfill reads its first record.

The file is never changed. It names the ids of the topics, the first offset of each partition and the one behind the
last, and how many offsets a chunk has; the borders of all chunks follow from it, on whatever day a chunk is read. Which
chunks are done is told by the ledger (job `backfill`), not here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.batch_tables import BatchTables
from odradek.pipeline.checkpoints import write_object
from odradek.pipeline.chunks import Chunk
from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.ledger import Ledger, LedgerRow, Offsets, offsets_of, offsets_text
from odradek.pipeline.places import Places

JOB = "backfill"


@dataclass(frozen=True, slots=True)
class Handover:
    """`pipeline`: what the backfill is bound to. `topics`: ids by name. `starts`, `ends`: what is history, of the same
    partitions. `offsets_per_chunk`: about how many offsets of all partitions together a chunk has."""

    pipeline: Mapping[str, Any]
    topics: Mapping[str, str]
    starts: Offsets
    ends: Offsets
    offsets_per_chunk: int

    @property
    def offsets(self) -> int:
        """How many offsets history has."""
        return Chunk(self.starts, self.ends).offsets()

    @property
    def chunks(self) -> int:
        """How many chunks history has; 0 where there is none."""
        return -(-self.offsets // self.offsets_per_chunk)

    def border(self, number: int) -> Offsets:
        """Where chunk `number` begins and the one before ends: each partition is cut into as many equal parts."""
        if number == 0:
            return self.starts
        return {
            topic: {
                partition: start + (self.ends[topic][partition] - start) * number // self.chunks
                for partition, start in partitions.items()
            }
            for topic, partitions in self.starts.items()
        }

    def save(self, places: Places) -> None:
        """Writes it down, whole or not at all."""
        content = {
            "pipeline": dict(self.pipeline),
            "topics": dict(self.topics),
            "start_offsets": json.loads(offsets_text(self.starts)),
            "end_offsets": json.loads(offsets_text(self.ends)),
            "offsets_per_chunk": self.offsets_per_chunk,
        }
        write_object(places.handover, content)

    def compare(self, fingerprint: Mapping[str, Any], places: Places) -> None:
        """Raises PipelineError where the settings of a job are not those of the record, as far as it gives them."""
        names = [name for name, value in fingerprint.items() if self.pipeline.get(name) != value]
        if names:
            told = ", ".join(f"{one} was {self.pipeline.get(one)!r} and is {fingerprint[one]!r}" for one in names)
            raise PipelineError(f"{places.handover} is of another backfill: {told}", f"set it as it was; or {ANEW}")

    def done(self, rows: list[LedgerRow], places: Places) -> int:
        """How many chunks the ledger's rows of the backfill have. Raises PipelineError if they are of another one."""
        for number, row in enumerate(rows):
            if number >= self.chunks or (row.batch_id, row.start_offsets, row.end_offsets) != (
                number,
                self.border(number),
                self.border(number + 1),
            ):
                raise PipelineError(f"{places.ledger} has chunks that {places.handover} does not know", ANEW)
        return len(rows)


class DamagedHandover(PipelineError):
    """The record is no record."""

    def __init__(self, places: Places, why: str) -> None:
        super().__init__(f"{places.handover}, which says where the backfill ends, {why}", f"put it back; or {ANEW}")


class UnfinishedBackfill(PipelineError):
    """An ingest is to begin where a backfill ends, and that has `left` to read."""

    def __init__(self, handover: Handover, done: int) -> None:
        self.handover = handover
        self.left = Chunk(handover.border(done), handover.ends).without_empty()
        super().__init__(
            f"the backfill is at {handover.offsets - self.left.offsets()} of {handover.offsets} offsets",
            "run `odradek pipeline backfill` to its end, then ingest",
        )


def read_handover(places: Places) -> Handover | None:
    """What was written down, if anything was. Raises DamagedHandover."""
    try:
        content = json.loads(places.handover.read_text())
        found = Handover(
            dict(content["pipeline"]),
            dict(content["topics"]),
            offsets_of(json.dumps(content["start_offsets"])),
            offsets_of(json.dumps(content["end_offsets"])),
            int(content["offsets_per_chunk"]),
        )
        if found.offsets_per_chunk < 1 or any(
            not 0 <= start <= found.ends[topic][number]
            for topic, partitions in found.starts.items()
            for number, start in partitions.items()
        ):
            raise ValueError("its offsets do not follow on each other")
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedHandover(places, f"is damaged ({type(error).__name__}: {error})") from error
    return found


def backfill_batch(name: str, number: int = 0) -> BatchId:
    """A chunk as a batch; a pipeline has one backfill."""
    return BatchId(name, JOB, 1, number)


def backfill_has_begun(name: str, tables: BatchTables, ledger: Ledger) -> bool:
    """Whether any table has a chunk."""
    return bool(ledger.rows(JOB)) or tables.last_batch(backfill_batch(name)) is not None


def finished_handover(
    places: Places, name: str, tables: BatchTables, ledger: Ledger, fingerprint: Mapping[str, Any]
) -> Handover | None:
    """Where an ingest that is new begins, if there was a backfill. Raises PipelineError unless that is at its end."""
    begun = backfill_has_begun(name, tables, ledger)
    try:
        handover = read_handover(places)
    except DamagedHandover as error:
        if begun:
            raise
        raise PipelineError(
            error.problem, "remove it, or run `odradek pipeline backfill`, which makes it anew"
        ) from error
    if handover is None:
        if begun:
            raise DamagedHandover(places, "is gone")
        return None
    handover.compare(fingerprint, places)
    done = handover.done(ledger.rows(JOB), places)
    if done < handover.chunks:
        raise UnfinishedBackfill(handover, done)
    return handover

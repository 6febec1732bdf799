"""What the next ingest will make of the state on the disk and of the topics, told before it starts.

The judging is the job's own (generations.py, handover.py, topic_ids.py): here it is only put into words. Nothing is
changed. What Spark alone can tell is left out: the types of dedup-keys, and whether state/, the keys that are
remembered, can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress

from odradek.pipeline.batch_tables import BatchTables
from odradek.pipeline.checkpoints import Checkpoint
from odradek.pipeline.chunks import Chunk
from odradek.pipeline.delta_tables import BrokenTable
from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.findings import OK, PROBLEM, WARNING, Finding, problem
from odradek.pipeline.generations import (
    JOB,
    Generation,
    Generations,
    Start,
    compare_tables,
    current_number,
    filled,
    fingerprint_of,
    first_offsets,
    read_generation,
)
from odradek.pipeline.handover import JOB as BACKFILL
from odradek.pipeline.handover import UnfinishedBackfill, backfill_batch, read_handover
from odradek.pipeline.inputs import refuse_beyond, refuse_missing
from odradek.pipeline.ledger import Ledger, Offsets
from odradek.pipeline.one_job import is_held
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from odradek.pipeline.topic_ids import TopicRecreated, Topics, compare_ids, compare_offsets, look

UNKNOWN = "?"
"""The type of a dedup key that the state does not have."""
PARTITIONS_TOLD = 4
PATIENCE_S = 5.0
"""How long a broker that has just answered may take to tell of the topics."""
ITSELF = "nothing to do: the next ingest does so by itself"
COUNTED = "nothing to do: the job goes on with what is there, and counts what is lost"


def state_findings(settings: Settings, broker_answers: bool) -> Iterator[Finding]:
    """Of a job at work, a backfill, the checkpoint, the tables, and the offsets that are to be read next."""
    try:
        yield from _State(settings, broker_answers).findings()
    except BrokenTable as error:
        yield problem("tables", error)
    except PipelineError as error:
        yield problem("checkpoint", error)
    except (OSError, ValueError) as error:
        said = f"the state of {settings.name} cannot be read: {' '.join(str(error).split())}"
        yield Finding("checkpoint", PROBLEM, said, f"put it back; or {ANEW}")


class _State:
    """The state of one pipeline. Raises PipelineError, and what reading the tables raises."""

    def __init__(self, settings: Settings, broker_answers: bool) -> None:
        self._settings = settings
        self._broker_answers = broker_answers
        self._places = Places.of(settings)
        self._tables = BatchTables(settings, self._places)
        self._ledger = Ledger(self._places.ledger)
        self._rows = self._ledger.rows(JOB)
        self._number = current_number(self._places, self._rows)
        fingerprint = fingerprint_of(settings, _key_types(settings, self._places, self._number))
        self._generations = Generations(settings, self._places, self._tables, self._ledger, fingerprint)

    def findings(self) -> Iterator[Finding]:
        """All that there are."""
        if is_held(self._places.lock):
            yield from self._at_work()
            return
        backfill = list(self._backfill())
        yield from backfill
        try:
            start = self._generations.decide()
        except UnfinishedBackfill:
            return
        except PipelineError as error:
            if all(error.problem != finding.says for finding in backfill):
                yield problem("checkpoint", error)
            return
        yield self._checkpoint(start)
        yield from self._offsets(start.generation.known, lambda topics: self._ingest(start.generation, topics))

    def _at_work(self) -> Iterator[Finding]:
        """The job has judged the state when it began, and changes it while we look: only what is whole is told."""
        yield Finding(
            "job",
            WARNING,
            f"an ingest or backfill is at work: it holds {self._places.lock}",
            "another is refused until it ends",
        )
        generation = read_generation(self._places, self._number, self._rows)
        if generation is None:
            return
        entered = [row.batch_id for row in self._rows if row.generation == self._number]
        batch = f"batch {entered[-1]} is entered" if entered else "no batch is entered yet"
        yield Finding("checkpoint", OK, f"generation {self._number}, in use: {batch}")
        yield from self._offsets(generation.known, lambda topics: self._ingest(generation, topics))

    def _backfill(self) -> Iterator[Finding]:
        """Whether the ingest can begin, or has begun, where a backfill has ended."""
        try:
            handover = self._generations.handover(self._number)
        except UnfinishedBackfill as error:
            try:
                compare_tables(self._tables, self._ledger.rows(BACKFILL), backfill_batch(self._settings.name))
            except PipelineError as worse:
                yield problem("backfill", worse)
                return
            handover, left = error.handover, error.left
            yield from self._offsets(handover.topics, lambda topics: self._history(handover.topics, left, topics))
            yield problem("backfill", error)
        except BrokenTable:
            raise
        except PipelineError as error:
            yield problem("backfill", error)
        else:
            if handover is not None:
                yield Finding("backfill", OK, f"is at its end, of {handover.offsets} offsets")

    def _checkpoint(self, start: Start) -> Finding:
        if start.notes:
            return Finding("checkpoint", WARNING, "; ".join(start.notes), ITSELF)
        at = _position(start.generation)
        if start.mending.removals:
            files = "; ".join(str(removal) for removal in start.mending.removals)
            return Finding(
                "checkpoint", WARNING, files, f"nothing to do: the next ingest removes it; it begins at {at}"
            )
        number, done, planned = start.generation.number, start.mending.last_done, start.mending.last_planned
        if not self._places.generation(number).exists():
            return Finding("checkpoint", OK, f"none yet in {self._places.state}; the ingest begins at {at}")
        if planned is None:
            return Finding("checkpoint", OK, f"generation {number} has no batch yet; it begins at {at}")
        batches = [f"batch {done} is done"] if done is not None else []
        batches += [f"batch {planned} is begun"] if planned != done else []
        return Finding("checkpoint", OK, f"generation {number}, {' and '.join(batches)}; goes on at {at}")

    def _offsets(self, known: Collection[str], compare: Callable[[Topics], Finding]) -> Iterator[Finding]:
        """What the topics say; nothing where the broker, or a topic, is told of already."""
        if not self._broker_answers:
            return
        pattern = self._settings.pattern
        try:
            yield compare(
                look(
                    self._settings,
                    lambda name: bool(pattern.fullmatch(name)) if pattern else name in known,
                    patience_s=PATIENCE_S,
                )
            )
        except _ToldAlready:
            return
        except PipelineError as error:
            yield problem("offsets", error)

    def _ingest(self, generation: Generation, topics: Topics) -> Finding:
        """Raises PipelineError where the ingest would."""
        notes = []
        try:
            compare_ids(generation.known, topics)
        except TopicRecreated as error:
            if self._settings.on_recreated_topic == "fail":
                raise
            generation = self._generations.after_recreation(generation, error.topics)
            notes += self._generations.notes
        _refuse_missing(self._settings, topics)
        starting = filled(generation.starting, topics)
        notes += self._loss(generation.done or {}, topics)
        if notes:
            return Finding("offsets", WARNING, "; ".join(notes), COUNTED)
        begin = first_offsets(generation.done or starting, topics)
        if generation.done is None:
            refuse_beyond(begin, topics)
        ends = {name: topic.ends for name, topic in topics.items()}
        return Finding("offsets", OK, f"{Chunk(begin, ends).offsets()} wait to be read")

    def _history(self, known: Mapping[str, str], left: Chunk, topics: Topics) -> Finding:
        """Raises PipelineError where the backfill would."""
        notes, again = [], []
        try:
            compare_ids(known, topics)
        except TopicRecreated as error:
            if self._settings.on_recreated_topic == "fail":
                raise
            again = error.topics
            notes.append(f"{', '.join(again)}: created again, so what the backfill has not read of it is lost")
        _refuse_missing(self._settings, topics)
        for offsets in (left.start, left.end):
            notes += self._loss({name: parts for name, parts in offsets.items() if name not in again}, topics)
        if notes:
            return Finding("offsets", WARNING, "; ".join(notes), COUNTED)
        return Finding("offsets", OK, f"{left.offsets()} wait for the backfill")

    def _loss(self, offsets: Offsets, topics: Topics) -> list[str]:
        """What is not there, if that is no error. Raises PipelineError."""
        try:
            compare_offsets(offsets, topics)
        except PipelineError as error:
            if self._settings.on_data_loss == "fail":
                raise
            return [error.problem]
        return []


class _ToldAlready(Exception):
    """Another finding says it."""


def _refuse_missing(settings: Settings, topics: Topics) -> None:
    try:
        refuse_missing(settings, topics)
    except PipelineError as error:
        raise _ToldAlready from error


def _key_types(settings: Settings, places: Places, number: int) -> dict[str, str]:
    """The types of the dedup keys as the state has them: only Spark knows those of now."""
    found: dict[str, str] = {}
    with suppress(PipelineError):  # What is damaged is told where it is judged.
        if handover := read_handover(places):
            found |= handover.pipeline.get("dedup-keys", {})
    with suppress(PipelineError):
        if query := Checkpoint(places.checkpoint(number)).query():
            found |= query.get("dedup-keys", {})
    return {name: found.get(name, UNKNOWN) for name in settings.dedup_keys}


def _position(generation: Generation) -> str:
    """Where it begins, in short."""
    if generation.done is None:
        return generation.starting
    places = sorted((name, *place) for name, parts in generation.done.items() for place in parts.items())
    told = ", ".join(f"{name}-{number} {offset}" for name, number, offset in places[:PARTITIONS_TOLD])
    return told + (f" and so on in {len(places)} partitions" if len(places) > PARTITIONS_TOLD else "")

"""Where an ingest goes on: in its checkpoint, or in a new one (the next generation) from offsets that are known.

The checkpoint plans and the tables remember; a start is clean when they agree:

A  neither there: the first generation, from the handover of a backfill or from the setting
B  the ledger's last batch is the checkpoint's last commit or the one after: Spark goes on
C  the checkpoint has committed more than the ledger has: tables are gone or old. An error.
D  the tables have more than the checkpoint has planned, or it is gone: it was lost or put back. A new generation from
   the ledger's end offsets; an error where keys were remembered in it, unless on-data-loss is continue
E  tables without a ledger: an error
F  topics that were made again: an error, or by on-recreated-topic a new generation, from their beginnings
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.batch_tables import BatchTables
from odradek.pipeline.checkpoints import Checkpoint, Damaged, Mending, read_object, write_object
from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.handover import JOB as BACKFILL
from odradek.pipeline.handover import Handover, backfill_batch, finished_handover
from odradek.pipeline.ledger import Ledger, LedgerRow, Offsets, offsets_of, offsets_text
from odradek.pipeline.places import Places
from odradek.pipeline.segments.options import EARLIEST, LATEST
from odradek.pipeline.settings import Settings
from odradek.pipeline.topic_ids import Topics

JOB = "ingest"


@dataclass(frozen=True, slots=True)
class Generation:
    """A checkpoint to run on.

    `starting`: offsets of its first batch: earliest, latest or Spark's JSON. `lost`: offsets that were gone before it
    began, to be entered with its first batch. `known`: ids by topic. `seen_ends`: where the topics ended when last
    looked at. `done`: the next offsets to read; None where nothing is known of them, before the first batch."""

    number: int
    starting: str
    lost: int
    known: Mapping[str, str]
    seen_ends: Offsets
    done: Offsets | None

    def with_topics(self, topics: Topics) -> Generation:
        """The same, after a look at the topics."""
        known = {**{name: topic.id for name, topic in topics.items()}, **self.known}
        return replace(self, known=known, seen_ends={name: topic.ends for name, topic in topics.items()})

    def save(self, places: Places) -> None:
        """Remembers it, whole or not at all."""
        content = {
            "starting_offsets": self.starting,
            "lost": self.lost,
            "topics": dict(self.known),
            "seen_ends": offsets_text(self.seen_ends),
        }
        write_object(places.generation(self.number), content)


def read_generation(places: Places, number: int, rows: list[LedgerRow]) -> Generation | None:
    """What was saved of a generation; `rows` is the ledger of the job. Raises Damaged."""
    content = read_object(places.generation(number))
    if content is None:
        return None
    try:
        starting, lost, known = str(content["starting_offsets"]), int(content["lost"]), dict(content["topics"])
        ends, said = offsets_of(content["seen_ends"]), _said(starting)
    except KeyError as error:
        raise Damaged(places.generation(number), f"it lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Damaged(places.generation(number), f"{type(error).__name__}: {error}") from error
    done = rows[-1].end_offsets if rows and rows[-1].generation == number else said
    return Generation(number, starting, lost, known, ends, done)


def _said(starting: str) -> Offsets | None:
    """The offsets that Spark's JSON names; -1 and -2 name none."""
    if not starting.startswith("{"):
        return None
    return {
        topic: {number: offset for number, offset in partitions.items() if offset >= 0}
        for topic, partitions in offsets_of(starting).items()
    }


def first_offsets(starting: str | Offsets, topics: Topics) -> dict[str, dict[int, int]]:
    """Where each partition begins, in numbers: by offsets or what `filled` returns; what is unsaid at the earliest."""
    if isinstance(starting, str):
        starting = offsets_of(starting) if starting.startswith("{") else {}
    found: dict[str, dict[int, int]] = {}
    for name, topic in topics.items():
        for number, first in topic.starts.items():
            offset = starting.get(name, {}).get(number, EARLIEST)
            found.setdefault(name, {})[number] = {EARLIEST: first, LATEST: topic.ends[number]}.get(offset, offset)
    return found


def fingerprint_of(settings: Settings, key_types: Mapping[str, str]) -> dict[str, Any]:
    """What a checkpoint is bound to: the same offsets and the same remembered keys."""
    topics = {"topics": sorted(settings.topics)} if settings.topics else {"topics-pattern": settings.topics_pattern}
    return {
        "name": settings.name,
        **topics,
        "dedup-keys": dict(sorted(key_types.items())),
        "sink": settings.sink,
    }


@dataclass(frozen=True, slots=True)
class Start:
    """How an ingest is to begin: decided, and nothing changed yet.

    `mending`: what goes of the generation's checkpoint. `anew`: all of it goes. `notes`: what else was decided."""

    generation: Generation
    mending: Mending = field(default_factory=Mending)
    anew: bool = False
    notes: tuple[str, ...] = ()


class Generations:
    """The checkpoints of one pipeline, and what its tables say to them."""

    def __init__(
        self, settings: Settings, places: Places, tables: BatchTables, ledger: Ledger, fingerprint: Mapping[str, Any]
    ) -> None:
        self._settings = settings
        self._places = places
        self._tables = tables
        self._ledger = ledger
        self._fingerprint = dict(fingerprint)
        self.notes: list[str] = []
        """What was mended or decided; for the user to see."""

    def current(self) -> Generation:
        """The generation to run, its checkpoint mended. Raises PipelineError, with nothing changed."""
        start = self.decide()
        self.notes += [*start.notes, *(f"removed {one}" for one in start.mending.removals)]
        start.mending.carry_out()
        if start.anew:
            self.checkpoint(start.generation.number).forget()
        return start.generation

    def decide(self) -> Start:
        """Which generation is to run, and what is to be done before. Changes nothing. Raises PipelineError."""
        rows = self._ledger.rows(JOB)
        number = current_number(self._places, rows)
        generation = read_generation(self._places, number, rows)
        checkpoint = self.checkpoint(number)
        entered = [row for row in rows if row.generation == number]
        if generation is None:
            if checkpoint.last_planned() is not None or entered:
                raise PipelineError(f"{self._places.generation(number)} is gone, with the ids of the topics", ANEW)
            if self._written(number) is not None:
                raise PipelineError(
                    f"the tables of {self._settings.name} in {self._settings.lake} have batches that the ledger "
                    f"{self._places.ledger} does not know",
                    ANEW,
                )
            return Start(self._beginning(number))
        try:
            return Start(generation, self._checked(checkpoint, entered, number))
        except (Damaged, _Lost) as error:
            return self._after_loss(error, generation, entered)

    def checkpoint(self, number: int) -> Checkpoint:
        """The checkpoint of a generation."""
        return Checkpoint(self._places.checkpoint(number))

    def begin(self, generation: Generation) -> Checkpoint:
        """Saves what is to be run, and returns its checkpoint."""
        generation.save(self._places)
        checkpoint = self.checkpoint(generation.number)
        if checkpoint.query() is None:
            checkpoint.save_query(self._fingerprint)
        return checkpoint

    def after_recreation(self, before: Generation, recreated: list[str]) -> Generation:
        """The next generation: `recreated` from their beginnings, the others from where they are."""
        entered = [row for row in self._ledger.rows(JOB) if row.generation == before.number]
        self._refuse_half_written(PipelineError(f"{', '.join(recreated)} was created again"), before.number, entered)
        done = before.done or {}
        lost = sum(
            max(0, end - done.get(name, {}).get(number, 0))
            for name in recreated
            for number, end in before.seen_ends.get(name, {}).items()
        )
        kept = {name: partitions for name, partitions in done.items() if name not in recreated}
        starting = offsets_text(kept) if before.done else before.starting
        known = {name: topic_id for name, topic_id in before.known.items() if name not in recreated}
        self.notes.append(
            f"{', '.join(recreated)}: created again, so read from the beginning; {lost} offsets are lost, and "
            "remembered keys forgotten"
        )
        carried = 0 if entered else before.lost
        return Generation(before.number + 1, starting, lost + carried, known, {}, kept if before.done else None)

    def _refuse_half_written(self, error: PipelineError, number: int, entered: list[LedgerRow]) -> None:
        """A batch that some tables have and the ledger has not can only be finished by its own checkpoint."""
        written = self._written(number)
        if written is not None and written > max((row.batch_id for row in entered), default=-1):
            raise PipelineError(
                f"{error.problem}, and batch {written} is only in a part of the tables", ANEW
            ) from error

    def _checked(self, checkpoint: Checkpoint, entered: list[LedgerRow], number: int) -> Mending:
        """What is to be mended of a checkpoint that can go on. Raises Damaged, _Lost and other PipelineErrors."""
        query = checkpoint.query()
        if query is None:
            if checkpoint.last_planned() is not None:
                raise PipelineError(f"{checkpoint.path} is a checkpoint, but not of this pipeline", ANEW)
            if entered:
                raise _Lost(f"the checkpoint {checkpoint.path} is gone")
            return Mending()
        self._compare_query(query, checkpoint)
        mending = checkpoint.mending(self._written(number))
        self._compare_tables(checkpoint, mending, entered, number)
        return mending

    def _beginning(self, number: int) -> Generation:
        """The first generation: from where a backfill has ended, or from the setting. Raises PipelineError."""
        handover = self.handover(number)
        if handover is None:
            return Generation(number, self._settings.starting_offsets, 0, {}, {}, None)
        compare_tables(self._tables, self._ledger.rows(BACKFILL), backfill_batch(self._settings.name))
        ends = handover.ends
        return Generation(number, offsets_text(ends), 0, handover.topics, ends, ends)

    def handover(self, number: int) -> Handover | None:
        """What a generation goes on from: the first one from a backfill, if there was one. Raises PipelineError."""
        if number > 1:
            return None
        return finished_handover(self._places, self._settings.name, self._tables, self._ledger, self._fingerprint)

    def _after_loss(self, error: PipelineError, generation: Generation, entered: list[LedgerRow]) -> Start:
        """D: from the ledger's end, if that says all and nothing but offsets was remembered."""
        self._refuse_half_written(error, generation.number, entered)
        if not entered:
            note = f"{error.problem}; nothing was written by it yet, so it is made anew"
            return Start(generation, anew=True, notes=(note,))
        if self._settings.dedup_keys and self._settings.on_data_loss == "fail":
            raise PipelineError(
                f"{error.problem}, and with it the keys that were remembered",
                "put the checkpoint back, or set on-data-loss to continue, which goes on from the ledger's last "
                "offsets and takes repetitions of earlier events for new ones",
            ) from error
        done = entered[-1].end_offsets
        after = replace(generation, number=generation.number + 1, starting=offsets_text(done), lost=0, done=done)
        return Start(after, notes=(f"{error.problem}; a new one begins at the ledger's last offsets",))

    def _compare_query(self, saved: Mapping[str, Any], checkpoint: Checkpoint) -> None:
        if saved == self._fingerprint:
            return
        names = [name for name in {**saved, **self._fingerprint} if saved.get(name) != self._fingerprint.get(name)]
        differences = ", ".join(f"{one} was {saved.get(one)!r} and is {self._fingerprint.get(one)!r}" for one in names)
        raise PipelineError(f"the checkpoint {checkpoint.path} is of another query: {differences}", ANEW)

    def _compare_tables(self, checkpoint: Checkpoint, mended: Mending, rows: list[LedgerRow], number: int) -> None:
        entered = max((row.batch_id for row in rows), default=-1)
        done, planned = mended.last_done, mended.last_planned
        if done is not None and done > entered:  # C
            raise PipelineError(
                f"the checkpoint {checkpoint.path} has committed batch {done}, but the ledger {self._places.ledger} "
                f"{f'ends at batch {entered}' if entered >= 0 else 'has none'}: tables are gone, or older",
                f"put the tables back; or {ANEW}",
            )
        compare_tables(self._tables, rows, self._batch(number))
        written = max(entered, -1 if (some := self._written(number)) is None else some)
        if written > (-1 if planned is None else planned):  # D
            raise _Lost(
                f"the checkpoint {checkpoint.path} has planned "
                f"{'no batch' if planned is None else f'up to batch {planned}'}, but the tables have batch {written}"
            )

    def _written(self, number: int) -> int | None:
        return self._tables.last_batch(self._batch(number))

    def _batch(self, number: int) -> BatchId:
        return BatchId(self._settings.name, JOB, number, 0)


class _Lost(PipelineError):
    """The checkpoint is gone, or older than the tables."""


def generations_on_disk(places: Places) -> list[int]:
    """The generations that there is any file of."""
    names = [one.stem.removeprefix("generation-") for one in places.state.glob("generation-*.json")]
    names += [one.name.removeprefix("checkpoint-") for one in places.state.glob("checkpoint-*")]
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def current_number(places: Places, rows: list[LedgerRow]) -> int:
    """The generation that was run last; 1 before there is any. `rows`: the ledger of the ingest."""
    return max([1, *generations_on_disk(places), *(row.generation for row in rows)])


def compare_tables(tables: BatchTables, entered: list[LedgerRow], batch: BatchId) -> None:
    """Raises PipelineError where a table lacks what the ledger's rows of this job and generation say it has."""
    good = [row.batch_id for row in entered if row.good]
    dead = [row.batch_id for row in entered if row.dead]
    for what, table, batches in (("rows", tables.rows, good), ("dead letters", tables.dead_letters, dead)):
        last = table.last_batch(batch)
        if batches and (last is None or last < max(batches)):
            raise PipelineError(
                f"the ledger has batch {max(batches)} of the {what} in {table.path}, the table "
                f"{'has none' if last is None else f'ends at batch {last}'}: it is gone, or older",
                f"put the table back; or {ANEW}",
            )


def filled(starting: str, topics: Topics) -> str:
    """Starting offsets as Spark wants them: if some partition's are said, all are; unsaid ones begin at the earliest.

    `latest` becomes the offsets of now, so that what is shown is what is read."""
    if starting == "earliest":
        return starting
    if starting == "latest":
        return offsets_text({name: topic.ends for name, topic in topics.items()})
    try:
        said = offsets_of(starting)
    except (ValueError, AttributeError, TypeError) as error:
        raise PipelineError(
            f"starting-offsets {starting[:80]!r} is neither earliest, latest nor offsets", 'as in {"orders": {"0": 12}}'
        ) from error
    strange = [f"{name}-{number}" for name in said for number in said[name] if number not in _partitions(name, topics)]
    if strange:
        raise PipelineError(f"starting offsets are given for {', '.join(strange)}, which is not read", "leave it out")
    return offsets_text(
        {
            name: {number: said.get(name, {}).get(number, EARLIEST) for number in topic.starts}
            for name, topic in topics.items()
        }
    )


def _partitions(name: str, topics: Topics) -> Mapping[int, int]:
    return topics[name].starts if name in topics else {}

"""Writes the good rows of a batch to files in one pass over its records, and counts all rows meanwhile.

Spark counts the rows of each outcome as they pass (`DataFrame.observe`), in the tasks that write the good ones. No
shuffle follows, so it takes the counts of a task once, from the attempt whose files it returns: the counts are those of
the files. Only a batch with dead or late rows takes a second pass, which keeps these rows, and writes them as well.
Nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.derived import FILTERED
from odradek.pipeline.parse.transforms import DEAD, GOOD, LATE, OUTCOME
from odradek.pipeline.sinks.table_files import Layout, TableFile, tasks_for, write_arranged, write_files
from odradek.pipeline.state.accounting import Tally
from odradek.pipeline.state.location import Location

NEWEST = "newest"
OUTCOMES = (GOOD, DEAD, LATE, FILTERED)


@dataclass(frozen=True, slots=True)
class Target:
    """A table of the rows of one outcome: their columns, and where their files are written. `partitions`: the columns
    of judged rows by which the table is partitioned."""

    place: Location
    directory: str
    columns: list[Column]
    layout: Layout = field(default_factory=Layout)
    partitions: tuple[Column, ...] = ()


@dataclass(slots=True)
class Staged:
    """The files of a batch by outcome, not yet committed, and the counts of its records (`first` is not counted).

    `rejected`: the dead rows, persisted, and the late ones if these are written. None if there are none."""

    tally: Tally = field(default_factory=Tally)
    files: dict[str, list[TableFile]] = field(default_factory=dict)
    rejected: DataFrame | None = None


def write_all(judged: DataFrame, targets: Mapping[str, Target], layout: Layout, most: int, staged: Staged) -> None:
    """Writes the judged rows, at most `most`, to the tables of their outcomes, and adds the files and the counts to
    `staged`. Rows of an outcome without a table are only counted. `layout`: how the batch is divided into tasks.

    Raises Spark's errors, and PipelineError if the files do not have the rows that were counted. The files in `staged`
    are then still there."""
    _write_good(judged, targets.get(GOOD), layout, most, staged)
    counts = staged.tally.by_outcome
    again = [one for one in (DEAD, LATE) if counts.get(one) and (one == DEAD or one in targets)]
    if again:
        _write_rejected(judged, {one: targets.get(one) for one in again}, staged)


def observed(judged: DataFrame, observation: Observation) -> DataFrame:
    """Returns the rows, counted as they pass.

    Spark pushes no filter below this. It would evaluate the decoding there, once for each use in the condition."""
    counts = [sf.count(sf.when(sf.col(OUTCOME) == one, 1)).alias(one) for one in OUTCOMES]
    newest = sf.max(sf.unix_micros("event_time")).alias(NEWEST)
    return judged.observe(observation, sf.count(sf.lit(1)).alias("rows"), newest, *counts)


def _write_good(judged: DataFrame, target: Target | None, layout: Layout, most: int, staged: Staged) -> None:
    observation = Observation()
    tasks = tasks_for(judged, layout, most)
    if target is None:
        observed(judged, observation).select(OUTCOME).write.format("noop").mode("append").save()
    else:
        # Spark counts again what it shuffles again, so the counts come after the shuffle.
        shuffled = target.partitions and tasks > 1
        arranged = judged.repartition(tasks, *target.partitions) if shuffled else judged.coalesce(tasks)
        good = observed(arranged, observation).where(sf.col(OUTCOME) == GOOD).select(*target.columns)
        staged.files[GOOD] = write_arranged(good, target.place, target.directory, target.layout)
    found, tally = observation.get, staged.tally
    tally.rows_in, tally.newest_us = found["rows"], found[NEWEST]
    tally.by_outcome = {one: found[one] for one in OUTCOMES if found[one]}
    if target is not None:
        _compare(target.place, found[GOOD], sum(file.rows for file in staged.files[GOOD]))


def _write_rejected(judged: DataFrame, targets: Mapping[str, Target | None], staged: Staged) -> None:
    counts = staged.tally.by_outcome
    rejected = observed(judged, Observation()).where(sf.col(OUTCOME).isin(*targets))
    staged.rejected = rejected = rejected.persist()
    for row in rejected.groupBy(OUTCOME, "reason").count().collect():
        if row[OUTCOME] == DEAD:
            staged.tally.reasons[row["reason"]] = row["count"]
    for outcome, target in targets.items():
        if outcome == DEAD:
            _compare("the dead letters", counts[DEAD], sum(staged.tally.reasons.values()))
        if target is not None:
            rows = rejected.where(sf.col(OUTCOME) == outcome).select(*target.columns)
            files = write_files(rows, target.place, target.directory, target.layout, counts[outcome])
            staged.files[outcome] = files


def _compare(place: object, counted: int, there: int) -> None:
    if counted != there:
        raise PipelineError(
            f"{place}: {counted} rows were counted, but {there} found: the records were read again in between, and "
            "differed",
            "start the job again to repeat the batch",
        )

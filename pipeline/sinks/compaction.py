"""Merges a Delta table's small files, and removes files that no version needs, with deltalake and without Spark.

Readers are not affected: a version keeps naming its files, and these are kept for the retention. Writers that append
are not affected either. A writer that rewrites files (the windows' merge) may conflict with a compaction; both retry.

Two compactions of one table must never run concurrently: deltalake 1.6 commits both, and every row is in the table
twice. The caller must hold a lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.delta_tables import open_table
from odradek.pipeline.state.location import Location

ATTEMPTS = 8
PAUSE_S = 0.25
ORPHAN_HOURS = 24
"""A file that no version names may be about to be committed by a running batch, unless it is older than this."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result for one table: files and bytes of its newest version before and after, and deleted files."""

    name: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    vacuumed: int
    version: int


def compact_table(
    name: str,
    place: Location,
    target_size: int,
    retention: timedelta,
    closed_before: datetime | None,
    sleep: Callable[[float], None] = time.sleep,
) -> Compacted:
    """Compacts and vacuums one table. If it raises PipelineError, the table is unchanged or partly compacted.

    `closed_before`: partitions of earlier days are no longer written; None: no day is known to be over."""
    try:
        files_before, bytes_before = _size(open_table(place))
        _patiently(lambda: _optimize(place, target_size, closed_before), sleep)
        vacuumed = _patiently(lambda: _vacuum(place, retention), sleep)
        table = open_table(place)
        files_after, bytes_after = _size(table)
    except (DeltaError, OSError) as error:
        problem = f"the table {place} could not be compacted: {error}"
        raise PipelineError(problem, "no row is lost; try again") from error
    return Compacted(name, files_before, files_after, bytes_before, bytes_after, vacuumed, table.version())


def _patiently(work: Callable[[], int], sleep: Callable[[float], None]) -> int:
    """Repeats the work on the newer version if a writer committed first."""
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except CommitFailedError:
            sleep(PAUSE_S * attempt)
    return work()


def _size(table: DeltaTable) -> tuple[int, int]:
    sizes = pa.table(table.get_add_actions()).column("size_bytes").to_pylist()
    return len(sizes), sum(sizes)


def _optimize(place: Location, target_size: int, closed_before: datetime | None) -> int:
    """Compacts in one commit; without a commit if nothing is to do. Returns the number of replaced files."""
    table = open_table(place)
    chosen = _filters(table, target_size, closed_before)
    if chosen is None:
        return 0
    # A single task: an ingest may need the other cores.
    done = table.optimize.compact(chosen or None, target_size=target_size, max_concurrent_tasks=1)
    if done["numFilesRemoved"]:
        table.create_checkpoint()
        table.cleanup_metadata()
    return int(done["numFilesRemoved"])


def _filters(
    table: DeltaTable, target_size: int, closed_before: datetime | None
) -> list[tuple[str, str, list[str]]] | None:
    """Returns a filter of the partitions whose days are over and that have several small files. None if there are none.

    An empty list means the whole table: it is not partitioned by days, so none of its partitions is ever closed."""
    partition_columns = table.metadata().partition_columns
    dates = {field.name for field in table.schema().fields if getattr(field.type, "type", "") == "date"}
    # Without the statistics: a time there may be beyond Python's range, such as the end of a window in the year 9999.
    columns = ["size_bytes", *(f"partition.{name}" for name in partition_columns)]
    files = pa.table(table.get_add_actions(flatten=True)).select(columns).to_pylist()
    small = Counter(
        tuple(file[f"partition.{name}"] for name in partition_columns)
        for file in files
        if file["size_bytes"] < target_size
    )
    several = [dict(zip(partition_columns, values, strict=True)) for values, count in small.items() if count > 1]
    by_day = [name for name in partition_columns if name in dates]
    chosen = [values for values in several if all(_is_over(values[name], closed_before) for name in by_day)]
    if not chosen:
        return None
    return [(name, "in", sorted({str(values[name]) for values in chosen})) for name in by_day]


def _is_over(day: date | None, closed_before: datetime | None) -> bool:
    return day is not None and closed_before is not None and day < closed_before.astimezone(UTC).date()


def _vacuum(place: Location, retention: timedelta) -> int:
    """Removes the files that no version within the retention names. Returns their number."""
    hours = -(-int(retention.total_seconds()) // 3600)
    return _remove(place, hours, orphans=False) + _remove(place, max(hours, ORPHAN_HOURS), orphans=True)


def _remove(place: Location, hours: int, orphans: bool) -> int:
    """Commits only if there are files to remove: the log names removed files long after their deletion."""
    table = open_table(place)
    how: dict[str, Any] = {"retention_hours": hours, "enforce_retention_duration": False, "full": orphans}
    exist = place.sizes()
    there = [name for name in table.vacuum(dry_run=True, **how) if name in exist]
    if there:
        table.vacuum(dry_run=False, **how)
    return len(there)


def summary_lines(tables: Sequence[Compacted]) -> list[str]:
    """Returns a line for each table."""
    return [
        f"{one.name:<13} files {one.files_before:,} -> {one.files_after:,}, bytes {one.bytes_before:,} -> "
        f"{one.bytes_after:,}, removed {one.vacuumed:,} old files, version {one.version}"
        for one in tables
    ]

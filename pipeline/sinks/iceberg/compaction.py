"""Merges an Iceberg table's small files, and removes files that no snapshot needs, without Spark.

Readers are not affected: a snapshot keeps naming its files, and these are kept for the retention. Writers that append
are not affected either: they repeat their commit, as this does. A writer that replaces a file that is merged here (the
windows' merge) repeats its work on the newer version, or this does.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import DateType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.compaction import ATTEMPTS, ORPHAN_HOURS, PAUSE_S, Compacted
from odradek.pipeline.sinks.iceberg.data_files import DIRECTORY, described, files_of, listed
from odradek.pipeline.sinks.iceberg.directory_catalog import HINT
from odradek.pipeline.sinks.iceberg.tables import TablePlace, first_line, forget_snapshots, replace_files, version_of
from odradek.pipeline.sinks.table_files import Layout, TableFile, read_back, scratch_directory, write_rows
from odradek.pipeline.sinks.table_rows import read_rows

EPOCH = date(1970, 1, 1)


def compact_iceberg(
    name: str,
    place: TablePlace,
    target_size: int,
    retention: timedelta,
    closed_before: datetime | None,
    sleep: Callable[[float], None] = time.sleep,
) -> Compacted:
    """Compacts one table, and removes old snapshots and their files. If it raises PipelineError, the table is unchanged
    or partly compacted.

    `closed_before`: partitions of earlier days are no longer written; None: no day is known to be over."""
    try:
        before = files_of(place.open())
        _patiently(lambda: _merge(place, target_size, closed_before), sleep)
        removed = _patiently(lambda: _remove_old(place, retention), sleep)
        table = place.open()
        after = files_of(table)
    except PipelineError:
        raise
    except Exception as error:  # Each type of catalog and each store has its own errors.
        problem = f"the table {place} could not be compacted: {first_line(error)}"
        raise PipelineError(problem, "no row is lost; try again") from error
    bytes_before, bytes_after = (sum(file.file_size_in_bytes for file in files) for files in (before, after))
    return Compacted(name, len(before), len(after), bytes_before, bytes_after, removed, version_of(table))


def _patiently(work: Callable[[], int], sleep: Callable[[float], None]) -> int:
    """Repeats the work on the newer version if a writer committed first."""
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except (CommitFailedException, ValidationException):
            sleep(PAUSE_S * attempt)
    return work()


def _merge(place: TablePlace, target_size: int, closed_before: datetime | None) -> int:
    """Merges files in one commit; without a commit if nothing is to do. Returns the number of replaced files."""
    table = place.open()
    names = tuple(one.name for one in table.spec().fields)
    groups = list(_groups(table, files_of(table), target_size, closed_before))
    old, new = [file for group in groups for file in group], list[TableFile]()
    if not old:
        return 0
    try:
        for group in groups:
            new += _written(place, table, group, names)
        with place.changing(table) as transaction:
            replace_files(transaction, old, [described(file, table, names) for file in new], {})
    except (CommitFailedException, ValidationException):
        place.place.remove(*(file.path for file in new))
        raise
    return len(old)


def _groups(
    table: Table, files: Sequence[DataFile], target_size: int, closed_before: datetime | None
) -> Iterator[list[DataFile]]:
    """Yields several small files of one partition that together have about the target size. Of a table that is
    partitioned by a day, only of days that are over."""
    schema, spec = table.schema(), table.spec()
    days = [
        number
        for number, one in enumerate(spec.fields)
        if isinstance(schema.find_field(one.source_id).field_type, DateType)
    ]
    small: dict[object, list[DataFile]] = defaultdict(list)
    for file in files:
        is_over = all(_is_over(file.partition[number], closed_before) for number in days)
        if is_over and file.spec_id == spec.spec_id and file.file_size_in_bytes < target_size:
            small[file.partition].append(file)
    for alike in small.values():
        group, size = list[DataFile](), 0
        for file in alike:
            if group and size + file.file_size_in_bytes > target_size:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.file_size_in_bytes
        if len(group) > 1:
            yield group


def _is_over(day: int | None, closed_before: datetime | None) -> bool:
    if day is None or closed_before is None:
        return False
    return day < (closed_before.astimezone(UTC).date() - EPOCH).days


def _written(place: TablePlace, table: Table, group: Sequence[DataFile], names: tuple[str, ...]) -> list[TableFile]:
    """Writes the rows of files to a new one. Raises PipelineError if it has not as many."""
    whole = pa.schema([pa.field(one.name, one.type) for one in table.schema().as_arrow()])
    found = listed(group, table, place.place)
    rows = (
        batch
        for number, path in enumerate(found.paths)
        for batch in read_rows(place.place, path, found.partitions[number] if found.partitions else {}, whole)
    )
    with scratch_directory() as scratch:
        written = write_rows(rows, scratch, place.place / DIRECTORY, Layout(names))
    files = [
        read_back(place.place, f"{DIRECTORY}/{one['path']}", one["rows"], one["bytes"], one["host"]) for one in written
    ]
    if sum(file.rows for file in files) != sum(file.record_count for file in group):
        place.place.remove(*(file.path for file in files))
        raise PipelineError(f"{place} has files with other numbers of rows than its metadata says", "restore the table")
    return files


def _remove_old(place: TablePlace, retention: timedelta) -> int:
    """Removes the snapshots that were replaced before the retention, and the files that none of the others names.
    Returns the number of files."""
    table, now = place.open(), datetime.now(UTC)
    before = _named(table)
    since_ms = (now - retention).timestamp() * 1000
    with place.changing(table) as transaction:
        # A snapshot is in use until the next one.
        forget_snapshots(
            transaction,
            lambda kept: [one for one, later in itertools.pairwise(kept) if later.timestamp_ms < since_ms],
        )
    after = _named(place.open())
    orphans_since = now - max(retention, timedelta(hours=ORPHAN_HOURS))
    old = [
        path
        for path, modified in place.place.modified().items()
        if path not in after and (path in before or modified < orphans_since)
    ]
    place.place.remove(*old)
    return len(old)


def _named(table: Table) -> set[str]:
    """Returns the files of the table's metadata and of its snapshots, by their paths in the table."""
    metadata = table.metadata
    named = {f"metadata/{HINT}", table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    named |= set(manifests)
    named |= {one.statistics_path for one in metadata.statistics}
    for manifest in manifests.values():
        named |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(table.io)}
    root = f"{table.location().rstrip('/')}/"
    return {path.removeprefix(root) for path in named}

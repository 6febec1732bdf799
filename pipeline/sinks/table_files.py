"""Parquet files that Spark's executors write into a table's directory, before they are committed to the table.

Each task writes its rows to its local disk, copies the files into the lake under unique names, and returns the names to
the driver. Spark returns the names of each task once, from the attempt that succeeded. Files of other attempts are
never committed, so no reader sees them. The driver then reads the footer of each file in the lake. So it detects that
executors do not share its lake before anything is committed.

Partitions are Hive-style directories below the table: `day=2024-01-01/part-....parquet`.
"""

from __future__ import annotations

import errno
import itertools
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from odradek.pipeline.errors import SHARED_LAKE, PipelineError
from odradek.pipeline.spark.errors import NO_ROOM
from odradek.pipeline.state.location import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
ROWS_PER_TASK = 100_000
ROWS_PER_GROUP = 1 << 20
MOST_PARTITIONS = 100_000
"""The maximum number of a table's partitions that one task may write to."""
WRITTEN_SCHEMA = "path STRING, rows LONG, bytes LONG, host STRING"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table: its partition columns; how many tasks write a batch, 0: by the batch's size; and how many
    rows a file may have, 0: all those of its task."""

    partition_by: tuple[str, ...] = ()
    tasks: int = 0
    rows_per_file: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The committed files of a batch, and their rows."""

    files: int = 0
    bytes: int = 0
    rows: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.files + other.files, self.bytes + other.bytes, self.rows + other.rows)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file, by its path relative to the table. `footer`: as read by the driver."""

    path: str
    rows: int
    bytes: int
    footer: Any


def write_files(rows: DataFrame, place: Location, directory: str, layout: Layout, expected: int) -> list[TableFile]:
    """Writes the rows on executors into `directory` of the table ("": the table itself). There must be `expected` rows.

    Raises Spark's errors, and PipelineError if the files found by the driver do not have the rows; the written files
    that are known are then removed."""
    arranged = _arranged(rows, layout, tasks_for(rows, layout, expected))
    found = write_arranged(arranged, place, directory, layout)
    there = sum(one.rows for one in found)
    if there != expected:
        place.remove(*(one.path for one in found))
        raise PipelineError(
            f"{place}: {expected} rows were counted, but {there} written: the records were read again in between, "
            "and differed",
            "start the job again to repeat the batch",
        )
    return found


def write_arranged(rows: DataFrame, place: Location, directory: str, layout: Layout) -> list[TableFile]:
    """Writes any number of rows as `write_files` does, by a task for each of their partitions in Spark."""
    writer = _writer(place / directory if directory else place, layout)
    written = rows.mapInArrow(writer, WRITTEN_SCHEMA).collect()
    prefix = f"{directory}/" if directory else ""
    try:
        return [read_back(place, prefix + one["path"], one["rows"], one["bytes"], one["host"]) for one in written]
    except BaseException:
        place.remove(*(prefix + one["path"] for one in written))
        raise


def tasks_for(rows: DataFrame, layout: Layout, expected: int) -> int:
    """Returns the number of tasks that write the rows, `expected` in number."""
    cores = rows.sparkSession.sparkContext.defaultParallelism
    return layout.tasks or max(min(-(-expected // ROWS_PER_TASK), cores), 1)


def _arranged(rows: DataFrame, layout: Layout, tasks: int) -> DataFrame:
    """Returns the rows in `tasks` partitions of Spark, without splitting a partition of the table among tasks, each of
    which would write a file to it.
    """
    if layout.partition_by and tasks > 1:
        return rows.repartition(tasks, *(f"`{name}`" for name in layout.partition_by))
    return rows.coalesce(tasks)


def read_back(place: Location, path: str, rows: int, size: int, host: str) -> TableFile:
    """Returns a file that a task has written, as the driver sees it. Raises PipelineError."""
    from pyarrow import parquet

    try:
        footer = parquet.read_metadata(place.open(path))
    except FileNotFoundError as error:
        raise PipelineError(
            f"the executor on {host} wrote {path}, but the driver does not find it in {place}: they do not share the "
            "lake; nothing was committed",
            SHARED_LAKE,
        ) from error
    except (OSError, ValueError) as error:
        raise PipelineError(f"{place / path} cannot be read back: {error}", "start again") from error
    if footer.num_rows != rows:
        raise PipelineError(f"{place / path} has {footer.num_rows} rows, but {rows} were written", "start again")
    return TableFile(path, rows, size, footer)


def _writer(place: Location, layout: Layout) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """Returns the function of a task: it writes its rows to files, and yields their names."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with scratch_directory() as scratch:
            written = write_rows(iter(batches), scratch, place, layout)
            if written:
                yield pa.RecordBatch.from_pylist(written)

    return write


def write_rows(
    batches: Iterator[pa.RecordBatch], scratch: Path, place: Location, layout: Layout
) -> list[dict[str, Any]]:
    """Writes the rows of a task to files below `place`, by way of `scratch`. Returns rows of WRITTEN_SCHEMA."""
    import pyarrow as pa
    from pyarrow import dataset

    first = next(batches, None)
    if first is None:
        return []
    written: list[dict[str, Any]] = []

    def visited(file: Any) -> None:
        path = Path(file.path)
        relative = str(PurePosixPath(path.relative_to(scratch)))
        written.append(written_file(relative, file.metadata.num_rows, path.stat().st_size))

    columns = pa.schema([first.schema.field(name) for name in layout.partition_by])
    dataset.write_dataset(
        pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches)),
        scratch,
        format="parquet",
        partitioning=dataset.partitioning(columns, flavor="hive") if layout.partition_by else None,
        basename_template=f"part-{uuid.uuid4().hex}-{{i}}.parquet",
        file_visitor=visited,
        max_partitions=MOST_PARTITIONS,
        max_rows_per_file=layout.rows_per_file,
        max_rows_per_group=min(layout.rows_per_file or ROWS_PER_GROUP, ROWS_PER_GROUP),
        use_threads=False,
    )
    for one in written:
        place.put_file(one["path"], scratch / one["path"])
    return written


def written_file(path: str, rows: int, size: int) -> dict[str, Any]:
    """Returns a row of WRITTEN_SCHEMA: a file that this host has written."""
    return {"path": path, "rows": rows, "bytes": size, "host": socket.gethostname()}


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Provides a task with a directory on its local disk. Raises OSError that names the host if the disk is full."""
    scratch = Path(tempfile.mkdtemp(prefix="odradek-"))
    try:
        yield scratch
    except OSError as error:
        if NO_ROOM in str(error):
            raise OSError(errno.ENOSPC, f"{NO_ROOM}: {scratch.parent} of {socket.gethostname()}") from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def partition_values(file: str, partition_by: Sequence[str]) -> Mapping[str, str | None]:
    """Returns the partition values in the Hive-style directories of a file's path."""
    texts = dict(part.split("=", 1) for part in PurePosixPath(file).parts[:-1] if "=" in part)
    values = {unquote(name): None if text == NULL_PARTITION else unquote(text) for name, text in texts.items()}
    return {name: values[name] for name in partition_by}

"""An Iceberg table to which each batch is added exactly once.

Spark's executors write the files, and pyiceberg commits them: one snapshot has a batch's files and its number
(batches.py). A commit fails if another writer was faster. It is then repeated on the newer version, unless that has the
batch, so two jobs cannot both commit it. Readers do not see uncommitted files; `compact` removes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, Or
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.iceberg.batches import has_batch, last_batch, marks_of
from odradek.pipeline.sinks.iceberg.columns import grow, iceberg_schema
from odradek.pipeline.sinks.iceberg.data_files import DIRECTORY, between, described, files_of, listed
from odradek.pipeline.sinks.iceberg.tables import FORMAT_VERSION, TablePlace, replace_files
from odradek.pipeline.sinks.known_events import DataFiles, Spans
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written, write_files
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location

ATTEMPTS = 8
PAUSE_S = 0.25


class IcebergSink:
    """The table at `place`. `name` is the table's part of the application id. `reached` is called with the name of each
    step that a batch completes. `catalog`: [iceberg]."""

    def __init__(
        self,
        place: Location,
        name: str,
        layout: Layout | None = None,
        reached: Callable[[str], None] = nothing,
        catalog: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.place = place
        self.name = name
        self._table = TablePlace(place, catalog or {})
        self._layout = layout or Layout()
        self._reached = reached
        self._sleep = sleep

    def last_batch(self, batch: BatchId) -> int | None:
        """Returns the number of the pipeline's last batch in the table. Raises PipelineError if it is not a table."""
        table = self._table.find()
        if table is None:
            self._refuse_other_files()
            return None
        return last_batch(table, batch.app(self.name))

    def prepare(self, schema: StructType) -> None:
        """Creates the table, or adds the columns that it lacks and widens others. Raises PipelineError if it is
        incompatible."""
        wanted = iceberg_schema(schema, self._table)
        table = self._table.find()
        if table is None:
            self._refuse_other_files()
            table = self._table.create(wanted, self._layout.partition_by)
        self._compare(table)
        try:
            grown = grow(table, schema, self._table)
        except CommitFailedException:  # Another writer committed first.
            grown = grow(self._table.open(), schema, self._table)
        if grown:
            self._reached(f"{self.name}: columns grown")

    def write(self, rows: DataFrame, expected: int, batch: BatchId) -> Written:
        """Adds the rows, `expected` in number, unless the table has this batch.

        Raises errors of Spark and of the catalog, and PipelineError; the table is then unchanged."""
        directory = self.aside(batch)
        if directory is None:
            return Written()
        return self.commit(write_files(rows, self.place, directory, self._layout, expected), batch)

    def aside(self, batch: BatchId) -> str | None:
        """Returns where the batch's files belong before they are committed. None if the table has the batch."""
        return None if has_batch(self._table.open(), batch.app(self.name), batch.number) else DIRECTORY

    def commit(self, files: Sequence[TableFile], batch: BatchId) -> Written:
        """Adds the files in `aside`, unless the table has this batch. Raises errors of the catalog; the table is then
        unchanged, and the files are removed."""
        app = batch.app(self.name)
        self._reached(f"{self.name}: files written")
        for attempt in range(1, ATTEMPTS + 1):
            table = self._table.open()  # The commit fails if a later version has this batch.
            if has_batch(table, app, batch.number):
                return Written()
            try:
                self._replace(table, [], files, batch)
                break
            except Conflict:
                if attempt == ATTEMPTS:
                    self.discard(files)
                    raise
                self._sleep(PAUSE_S * attempt)
        self._reached(f"{self.name}: committed")
        return Written(len(files), sum(file.bytes for file in files), sum(file.rows for file in files))

    def discard(self, files: Sequence[TableFile]) -> None:
        """Removes files that were not committed."""
        self.place.remove(*(file.path for file in files))

    def files(self, column: str, spans: Spans) -> DataFiles:
        """Returns the data files of the newest version that may have rows whose time in `column` is in a span."""
        table = self._table.find()
        if table is None:
            return DataFiles(self.place)
        return listed(files_of(table, _within(table, column, spans)), table, self.place)

    def _replace(self, table: Table, removed: Sequence[DataFile], files: Sequence[TableFile], batch: BatchId) -> None:
        """Commits the batch to this version of the table. Raises Conflict if another writer was faster, and other
        errors, after which the table is unchanged and the files are removed."""
        app, version = batch.app(self.name), table.metadata_location
        conflict = Conflict(f"another writer has changed {self.place}", "start again")
        added = [described(file, table, self._layout.partition_by) for file in files]
        try:
            with self._table.changing(table) as transaction:
                replace_files(transaction, removed, added, marks_of(app, batch.number))
        except (CommitFailedException, ValidationException) as error:  # The commit has not succeeded.
            raise conflict from error
        except Exception as error:
            # The commit may have succeeded despite the error, so files are removed only if the table lacks them.
            newest = self._table.open()
            if not has_batch(newest, app, batch.number):
                if newest.metadata_location != version:  # Perhaps `compact` has removed what the commit had to read.
                    raise conflict from error
                self.discard(files)
                raise
            if not {one.file_path for one in files_of(newest)}.issuperset(one.file_path for one in added):
                raise

    def _compare(self, table: Table) -> None:
        """Raises PipelineError if the table is not as this sink would create it."""
        if table.format_version != FORMAT_VERSION:
            raise PipelineError(
                f"the table {self.place} is of version {table.format_version} of Iceberg's format, not "
                f"{FORMAT_VERSION}",
                "set another name",
            )
        found = tuple(
            str(table.schema().find_column_name(one.source_id))
            if isinstance(one.transform, IdentityTransform)
            else one.name
            for one in table.spec().fields
        )
        if found != self._layout.partition_by:
            raise PipelineError(
                f"the table {self.place} is partitioned by {', '.join(found) or 'nothing'}, not by "
                f"{', '.join(self._layout.partition_by) or 'nothing'}",
                "set partition-by to its old value, or set another name",
            )

    def _refuse_other_files(self) -> None:
        """Raises PipelineError if there are files. Metadata may be left of a creation that was interrupted."""
        if any(not one.startswith("metadata/") for one in self.place.sizes()):
            raise PipelineError(f"{self.place} has files but is not an Iceberg table", "move them, or set lake or name")


class Conflict(PipelineError):
    """Another writer has committed the next version."""


def _within(table: Table, column: str, spans: Spans) -> BooleanExpression | None:
    """Returns a condition that is true of rows whose time is in a span. None if the table lacks the column."""
    found = next((one for one in table.schema().fields if one.name == column), None)
    if found is None:
        return None
    step = 1000 if isinstance(found.field_type, LongType) else 1
    condition: BooleanExpression = AlwaysFalse()
    for start, end in spans:
        condition = Or(condition, between(column, start // step, end // step))
    return condition

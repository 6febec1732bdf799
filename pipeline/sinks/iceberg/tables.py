"""Opens, creates and commits to Iceberg tables.

With [iceberg] they are in a catalog of pyiceberg: `catalog` is its name in pyiceberg's own configuration, `namespace`
the tables' namespace, and all other options are properties of the catalog. Without [iceberg] a table is its directory.
In both cases the tables' files are in the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.iceberg.batches import properties_of
from odradek.pipeline.sinks.iceberg.directory_catalog import DirectoryCatalog
from odradek.pipeline.sinks.iceberg.lake_io import STORE_OPTION, LakeIO, uri_of
from odradek.pipeline.state.delta_tables import BrokenTable
from odradek.pipeline.state.location import Location

NAMESPACE = "default"
FORMAT_VERSION = 2
FIRST_PARTITION_FIELD = 1000
MOST_SNAPSHOTS = 1000
"""How many snapshots a table's metadata has, which each commit writes anew. `compact` removes the others' files."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table in the lake. `options`: [iceberg]."""

    place: Location
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.place)

    def find(self) -> Table | None:
        """Opens the newest version. None if there is no table. Raises BrokenTable and PipelineError."""
        if self.place.is_local and self.place.path.is_file():
            raise PipelineError(f"{self.place} is a file, but should be a table", "move it, or set lake or name")
        catalog = self._catalog()
        with self._errors():
            try:
                table = catalog.load_table(self.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        if table.location().rstrip("/") not in (uri_of(self.place), self.place.url):
            raise PipelineError(
                f"the catalog has {'.'.join(self.name)} in {table.location()}, not in {uri_of(self.place)}",
                "set lake, name, or the namespace in [iceberg]",
            )
        return table

    def open(self) -> Table:
        """Opens the newest version of a table that must exist. Raises BrokenTable and PipelineError."""
        table = self.find()
        if table is None:
            raise PipelineError(f"{self.place} is not an Iceberg table", "restore the table")
        return table

    def create(self, schema: Schema, partition_by: Sequence[str]) -> Table:
        """Creates the table, or opens it if another job has just created it. Raises PipelineError."""
        fields = [
            PartitionField(schema.find_field(name).field_id, FIRST_PARTITION_FIELD + number, IdentityTransform(), name)
            for number, name in enumerate(partition_by)
        ]
        properties = {
            TableProperties.FORMAT_VERSION: str(FORMAT_VERSION),
            # Tasks write files without the ids of columns; readers find the columns by their names.
            TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json(),
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            TableProperties.MANIFEST_MERGE_ENABLED: "true",
        }
        catalog = self._catalog()
        with self._errors():
            if not isinstance(catalog, DirectoryCatalog):
                catalog.create_namespace_if_not_exists(self.name[:-1])
            try:
                return catalog.create_table(
                    self.name, schema, uri_of(self.place), PartitionSpec(*fields), properties=properties
                )
            except TableAlreadyExistsError:
                pass
        return self.open()

    @contextmanager
    def changing(self, table: Table) -> Iterator[Transaction]:
        """Commits the transaction at the end of the block. Raises CommitFailedException if another writer has committed
        a version after that of `table`, and errors of the catalog; the commit may then have succeeded nevertheless."""
        # pyiceberg would repeat the commit on the newer version, without a look whether that has the batch.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        transaction = table.transaction()
        yield transaction
        transaction.commit_transaction()

    @property
    def name(self) -> tuple[str, str]:
        """The table's name in its catalog."""
        return self.options.get("namespace", NAMESPACE), self.place.url.rpartition("/")[2]

    def _catalog(self) -> Catalog:
        """Raises PipelineError."""
        stored = {f"{STORE_OPTION}{name}": value for name, value in self.place.options.items()}
        if not self.options:
            return DirectoryCatalog(self.place, stored)
        properties = {**stored, PY_IO_IMPL: f"{LakeIO.__module__}.{LakeIO.__name__}", **self.options}
        properties.pop("namespace", None)
        try:
            return _loaded(properties.pop("catalog", NAMESPACE), tuple(sorted(properties.items())))
        except Exception as error:  # Each type of catalog has its own errors.
            problem = f"the Iceberg catalog cannot be opened: {first_line(error)}"
            raise PipelineError(problem, "check [iceberg]") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises a PipelineError in place of errors of pyiceberg and of the catalog. Those of the lake remain."""
        try:
            yield
        except (PipelineError, CommitFailedException, NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError):
            raise
        except Exception as error:  # Each type of catalog has its own errors.
            if not self.options:
                if isinstance(error, ValidationError | ValueError | KeyError | TypeError | AttributeError):
                    raise BrokenTable(self.place, error) from error
                raise
            raise PipelineError(
                f"the Iceberg catalog has no answer about {self.place}: {first_line(error)}", "check [iceberg]"
            ) from error


@lru_cache(maxsize=16)
def _loaded(name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    """Opens a catalog. Cached, with its connections."""
    return load_catalog(name, **dict(properties))


def version_of(table: Table) -> int:
    """Returns the number of the table's last snapshot, counted from 1. 0 if it has none."""
    return 0 if (snapshot := table.current_snapshot()) is None else snapshot.sequence_number or 0


def first_line(error: Exception) -> str:
    """Returns an error in one line."""
    return (f"{error}".strip().splitlines() or [type(error).__name__])[0]


def replace_files(
    transaction: Transaction, removed: Sequence[DataFile], added: Sequence[DataFile], marks: Mapping[str, str]
) -> None:
    """Adds a snapshot that replaces files. `marks`: what its summary and the table's properties say about it."""
    update = transaction.update_snapshot(snapshot_properties=dict(marks))
    with update.overwrite() if removed else update.merge_append() as snapshot:
        for file in removed:
            snapshot.delete_data_file(file)
        for file in added:
            snapshot.append_data_file(file)
    if marks:
        transaction.set_properties(dict(marks))
    forget_snapshots(transaction, lambda kept: kept[:-MOST_SNAPSHOTS])


def forget_snapshots(transaction: Transaction, chosen: Callable[[list[Any]], list[Any]]) -> None:
    """Removes snapshots from the metadata, chosen among those that no branch or tag names, oldest first."""
    metadata = transaction.table_metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    ordered = sorted(metadata.snapshots, key=lambda one: one.timestamp_ms)
    gone = [one.snapshot_id for one in chosen(ordered) if one.snapshot_id not in named]
    if gone:
        marks = properties_of(metadata)
        ExpireSnapshots(transaction).by_ids(gone).commit()
        if marks:
            transaction.set_properties(marks)

"""An Iceberg table without a catalog: its directory has a file for each version, `metadata/vN.metadata.json`.

A commit creates the file of the next version. A file is created once: of several writers one creates it, and the others
have a conflict. So a commit is atomic in a directory and in a store with conditional puts. (Iceberg's specification,
"File System Tables", which calls a commit by renaming unsafe; nothing is renamed here.)

`metadata/version-hint.text` has the number of a version that exists. Readers begin there and look for later ones; some
take the number as it is. So it is written after each commit.
"""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from odradek.pipeline.sinks.iceberg.lake_io import LakeIO, uri_of
from odradek.pipeline.state.location import Location

HINT = "version-hint.text"


class DirectoryCatalog(NoopCatalog):
    """Has the one table at `place`, under any name."""

    def __init__(self, place: Location, properties: Properties) -> None:
        super().__init__("directory", **properties)
        self._place = place
        self._metadata = place / "metadata"
        self._io = LakeIO(properties)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raises NoSuchTableError, and ValueError if the metadata cannot be read."""
        version = self._newest()
        if version == 0:
            raise NoSuchTableError(f"{self._place} is not an Iceberg table")
        content = self._metadata.read(name_of(version))
        if content is None:
            raise ValueError(f"{self._metadata / name_of(version)} is missing")
        return self._table(TableMetadataUtil.parse_raw(content.decode()), version)

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Raises TableAlreadyExistsError."""
        metadata = new_table_metadata(
            location=location or uri_of(self._place),
            schema=schema,
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=properties,
        )
        if self._newest() > 0 or not self._put(metadata, 1):
            raise TableAlreadyExistsError(f"{self._place} is a table already")
        return self._table(metadata, 1)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Raises CommitFailedException if another writer has committed in between."""
        version = self._newest()
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        changed = update_table_metadata(current.metadata, updates, metadata_location=current.metadata_location)
        if not self._put(changed, version + 1):
            raise CommitFailedException(f"another writer has committed version {version + 1} of {self._place}")
        self._delete_old_metadata(self._io, current.metadata, changed)
        return CommitTableResponse.model_validate({"metadata": changed, "metadata-location": self._uri(version + 1)})

    def _newest(self) -> int:
        """Returns the number of the newest version. 0 if there is none."""
        hint = (self._metadata.read(HINT) or b"").decode("ascii", "replace").strip()
        version = int(hint) if re.fullmatch("[0-9]+", hint) else 0
        if version == 0 or self._metadata.read(name_of(version)) is None:
            found = (re.fullmatch(r"v([0-9]+)\.metadata\.json", name) for name in self._metadata.names("v"))
            version = max((int(one[1]) for one in found if one), default=0)
        while version and self._metadata.read(name_of(version + 1)) is not None:
            version += 1
        return version

    def _put(self, metadata: TableMetadata, version: int) -> bool:
        """Creates a version. False if it exists."""
        if not self._metadata.create(name_of(version), metadata.model_dump_json().encode()):
            return False
        self._metadata.replace(HINT, str(version).encode())
        return True

    def _uri(self, version: int) -> str:
        return uri_of(self._metadata / name_of(version))

    def _table(self, metadata: TableMetadata, version: int) -> Table:
        return Table((self._place.url.rpartition("/")[2],), metadata, self._uri(version), self._io, self)


def name_of(version: int) -> str:
    """Returns the name of a version's file."""
    return f"v{version}.metadata.json"

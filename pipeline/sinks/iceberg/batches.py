"""The batches that an Iceberg table has: each snapshot of a batch has its number in the summary.

The newest number is found from the current snapshot back. So a table that was rolled back to an earlier snapshot has
the batches of that one. If snapshots have expired, perhaps none of those that are left has a number, because other
programs made them. Then the table's property counts, which each batch sets in the same commit.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

MARK = "odradek.batch."
FIRST = 1
"""The sequence number of a table's first snapshot."""
NONE = ""
"""The property of a table that was rolled back to a snapshot before the first batch."""


def marks_of(app: str, number: int) -> dict[str, str]:
    """Returns the property that names batch `number` of `app`."""
    return {f"{MARK}{app}": str(number)}


def last_batch(table: Table, app: str) -> int | None:
    """Returns the number of the last batch of `app`. None if the table has none."""
    number = _last(table.metadata, f"{MARK}{app}")
    return None if number == NONE else int(number)


def has_batch(table: Table, app: str, number: int) -> bool:
    """Whether this version of a table has the batch."""
    last = last_batch(table, app)
    return last is not None and last >= number


def properties_of(metadata: TableMetadata) -> dict[str, str]:
    """Returns the properties that name the last batches of the current snapshot, whatever the table's properties say.
    They must be set when snapshots are removed: the table may have been rolled back."""
    return {name: _last(metadata, name) for name in metadata.properties if name.startswith(MARK)}


def _last(metadata: TableMetadata, name: str) -> str:
    oldest = None
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        if snapshot.summary is not None and (number := snapshot.summary.get(name)) is not None:
            return str(number)
        oldest = snapshot
    if oldest is None or oldest.sequence_number == FIRST:
        return NONE  # The whole history is there.
    return metadata.properties.get(name, NONE)

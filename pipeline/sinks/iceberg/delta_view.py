"""An Iceberg table as a temporary Delta table of the same data files, for deltalake's query engine.

The files of a lake in a directory are linked, those in an object store copied. In a partition column, the empty string
becomes null, as in every Delta table.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from odradek.pipeline.sinks.iceberg.columns import delta_columns
from odradek.pipeline.sinks.iceberg.data_files import files_of, listed
from odradek.pipeline.sinks.iceberg.tables import TablePlace


def delta_view(place: TablePlace, directory: Path) -> DeltaTable:
    """Creates the Delta table in an empty directory. Raises PipelineError, and errors of reading the files."""
    table = place.open()
    files, schema = files_of(table), delta_columns(table)
    found = listed(files, table, place.place)
    names = [one.name for one in table.spec().fields]
    view = DeltaTable.create(str(directory), schema, partition_by=names)
    added = list[AddAction | RemoveAction]()
    for number, path in enumerate(found.paths):
        copy = directory / f"{number}.parquet"
        if place.place.is_local:
            copy.symlink_to(place.place.path / path)
        else:
            with closing(place.place.open(path)) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        statistics = json.dumps({"numRecords": files[number].record_count})
        values = found.partitions[number] if found.partitions else {}
        added.append(AddAction(copy.name, os.stat(copy).st_size, dict(values), 0, True, statistics))
    view.create_write_transaction(added, "append", schema, names)
    view.update_incremental()
    return view

"""Commits a version of a Delta table that removes files and adds others, which deltalake's interface does not offer.

A version is a JSON file in the log with the next number. The file is created once: of several writers, one creates it,
and the others have a conflict. (Delta's protocol, "Delta Log Entries".)
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.file_statistics import statistics_of
from odradek.pipeline.sinks.table_files import TableFile, partition_values
from odradek.pipeline.state.delta_tables import open_table
from odradek.pipeline.state.location import Location

CHECKPOINT_EACH = 100
"""deltalake's own default. A reader reads the log from the last checkpoint on."""
SUPPORTED = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""The features that are respected here; a table without the first two in use is as if it did not have them."""


class Conflict(Exception):
    """Another writer has committed the next version."""


def refuse_unsupported(table: DeltaTable, place: Location) -> None:
    """Raises PipelineError if files of the table cannot be replaced by this module."""
    protocol, options = table.protocol(), table.metadata().configuration
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    found = sorted(features - SUPPORTED)
    if protocol.min_writer_version in range(3, 7):
        found.append(f"writer version {protocol.min_writer_version}")
    found += [name for name in ("delta.appendOnly", "delta.enableChangeDataFeed") if options.get(name) == "true"]
    found += [f"delta.invariants of {one.name}" for one in table.schema().fields if "delta.invariants" in one.metadata]
    if found:
        raise PipelineError(
            f"the table {place} has {', '.join(found)}, which mode = upsert does not support", "set another name"
        )


def commit_replacement(
    place: Location,
    table: DeltaTable,
    removed: Sequence[str],
    added: Sequence[TableFile],
    partition_by: Sequence[str],
    app: str,
    number: int,
) -> None:
    """Commits the version after that of `table`, with batch `number` of `app`. `removed`: paths as in the table's log.

    Raises Conflict if that version exists, and errors of the store; the version may then exist nevertheless."""
    now = int(time.time() * 1000)
    info = {"timestamp": now, "operation": "MERGE", "operationParameters": {}, "isBlindAppend": False}
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    actions.append({"txn": {"appId": app, "version": number, "lastUpdated": now}})
    actions += [{"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}} for path in removed]
    actions += [
        {
            "add": {
                "path": quote(file.path, safe="/="),
                "partitionValues": dict(partition_values(file.path, partition_by)),
                "size": file.bytes,
                "modificationTime": now,
                "dataChange": True,
                "stats": statistics_of(file.footer),
            }
        }
        for file in added
    ]
    version = table.version() + 1
    content = "".join(json.dumps(one) + "\n" for one in actions).encode()
    if not place.create(f"_delta_log/{version:020}.json", content):
        raise Conflict(f"version {version} of {place} exists")
    if (version + 1) % CHECKPOINT_EACH == 0:
        with suppress(DeltaError, OSError):  # A missing checkpoint only makes readers slower.
            current = open_table(place)
            current.create_checkpoint()
            current.cleanup_metadata()

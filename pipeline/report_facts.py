"""What is known of a pipeline, as plain values: the content of report.json, and all that the page is drawn from.

    name, generated_at
    totals      batches, rows_in, good, dead, duplicates, late, lost, files_written, bytes_written
    is_balanced rows_in = good + dead + duplicates + late
    rate        rows_per_second of the last batch and of all (rows by the time that batches took)
    watermark, state_rows                    of the newest batch of the ingest
    reasons     why rows were rejected, and how many, most first
    batches     the newest MOST_BATCHES of them, oldest first
    tables      by name: path, format, version, files, bytes, rows, smallest, median, largest, sizes
    lag         problem, group, total, partitions

Times are ISO 8601 in UTC, sizes bytes. `sizes` counts files by their size: [[up to, files], ...], powers of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from kafka.errors import KafkaError
from pyarrow import parquet

from odradek.pipeline.delta_tables import table_at
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.lag import PartitionLag, partition_lags, processed_offsets
from odradek.pipeline.ledger import LedgerRow
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings

MOST_BATCHES = 1000
COUNTS = ("rows_in", "good", "dead", "duplicates", "late", "lost", "files_written", "bytes_written")

Facts = dict[str, Any]


def facts_of(settings: Settings, rows: Sequence[LedgerRow], now: datetime, patience_ms: int) -> Facts:
    """Everything, from the ledger's rows, the tables and the broker. What cannot be had is said in its place."""
    places = Places.of(settings)
    in_order = sorted(rows, key=lambda row: (row.finished_at, row.job, row.generation, row.batch_id))
    totals: dict[str, int] = {name: sum(getattr(row, name) for row in rows) for name in COUNTS}
    last = in_order[-1]
    streamed = [row for row in in_order if row.job == "ingest"]
    return {
        "name": settings.name,
        "generated_at": now.isoformat(timespec="seconds"),
        "totals": {"batches": len(rows), **totals},
        "is_balanced": totals["rows_in"] == sum(totals[name] for name in ("good", "dead", "duplicates", "late")),
        "rate": {"last": _rate([last]), "mean": _rate(rows)},
        "watermark": _iso(streamed[-1].watermark) if streamed else None,
        "state_rows": streamed[-1].state_rows if streamed else 0,
        "reasons": _reasons(rows),
        "batches": [_batch(row) for row in in_order[-MOST_BATCHES:]],
        "tables": dict(_tables(places)),
        "lag": _lag(settings, rows, patience_ms),
    }


def _batch(row: LedgerRow) -> Facts:
    facts = {name: value for name, value in asdict(row).items() if name not in ("start_offsets", "end_offsets")}
    times = {name: _iso(getattr(row, name)) for name in ("started_at", "finished_at", "watermark")}
    return {**facts, **times, "reasons": dict(row.reasons), "seconds": _seconds(row), "rows_per_second": _rate([row])}


def _seconds(row: LedgerRow) -> float:
    return round((row.finished_at - row.started_at).total_seconds(), 3)


def _rate(rows: Sequence[LedgerRow]) -> float:
    seconds = sum(_seconds(row) for row in rows)
    return round(sum(row.rows_in for row in rows) / seconds, 1) if seconds > 0 else 0.0


def _reasons(rows: Iterable[LedgerRow]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        for reason, count in row.reasons.items():
            found[reason] = found.get(reason, 0) + count
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _tables(places: Places) -> Iterable[tuple[str, Facts]]:
    tables = {"rows": places.rows, "dead_letters": places.dead_letters, "windows": places.windows}
    for name, path in {**tables, "batches": places.ledger}.items():
        table = table_at(path)
        if table is not None:
            yield name, _delta(path, table)
        elif path.is_dir():
            yield name, _parquet(path)


def _delta(path: Path, table: DeltaTable) -> Facts:
    files = pa.table(table.get_add_actions(flatten=True))
    counts = files.column("num_records").to_pylist()
    rows = None if None in counts else sum(counts)
    return _table(path, "delta", table.version(), files.column("size_bytes").to_pylist(), rows)


def _parquet(path: Path) -> Facts:
    """A directory that a job may write to at this moment: a file that goes away is not counted."""
    sizes, rows = [], 0
    for file in path.glob("batch=*/**/*.parquet"):
        try:
            sizes.append(file.stat().st_size)
            rows += parquet.read_metadata(file).num_rows
        except FileNotFoundError:
            continue
    return _table(path, "parquet", None, sizes, rows)


def _table(path: Path, kind: str, version: int | None, sizes: Sequence[int], rows: int | None) -> Facts:
    by_size: dict[int, int] = {}
    for size in sizes:
        upper = 1 << max(size - 1, 1).bit_length()
        by_size[upper] = by_size.get(upper, 0) + 1
    return {
        "path": str(path),
        "format": kind,
        "version": version,
        "files": len(sizes),
        "bytes": sum(sizes),
        "rows": rows,
        "smallest": min(sizes, default=0),
        "median": int(median(sizes)) if sizes else 0,
        "largest": max(sizes, default=0),
        "sizes": [[upper, by_size[upper]] for upper in sorted(by_size)],
    }


def _lag(settings: Settings, rows: Sequence[LedgerRow], patience_ms: int) -> Facts:
    """The lag of each partition; with the broker away what was processed, and the problem."""
    processed = processed_offsets(rows)
    problem = ""
    try:
        lags = partition_lags(settings, processed, patience_ms)
    except (KafkaError, PipelineError, OSError) as error:
        problem = f"{settings.bootstrap_server} does not say where the topics end: {error}"
        lags = [
            PartitionLag(topic, number, offset)
            for topic in sorted(processed)
            for number, offset in sorted(processed[topic].items())
        ]
    partitions = [_partition(each, is_reached=not problem) for each in lags]
    known = [each["lag"] for each in partitions if each["lag"] is not None]
    return {
        "problem": problem or None,
        "group": settings.group,
        "total": None if problem else sum(known),
        "partitions": partitions,
    }


def _partition(each: PartitionLag, is_reached: bool) -> Mapping[str, Any]:
    seen = {"lag": each.lag, "in_open_transactions": each.in_open_transactions, "problem": each.problem or None}
    return {**asdict(each), **(seen if is_reached else dict.fromkeys(seen))}

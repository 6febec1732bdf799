"""Collects the facts about a pipeline as plain values: the content of report.json, and the only input of the page.

    name, generated_at
    totals      batches, rows_in, redriven, the outcomes (state/accounting.py), lost, files_written, bytes_written
    is_balanced rows_in + redriven is the sum of the outcomes
    recent      rows_in, dead, lost     of the batches that ended within alarm-period
    rate        rows per second of the last batch, and of all (rows divided by the duration of the batches)
    watermark, newest_event_time             of the newest batch; the watermark of the newest that read topics
    reasons     the number of rejected rows by reason, most frequent first
    redriven    the number of redriven dead letters by reason, most frequent first
    warnings    the number of rows that violate a `warn` rule, by rule, most frequent first
    batches     the newest MOST_BATCHES, oldest first
    tables      by name: path, format, version, files, bytes, rows, smallest, median, largest, sizes
    lag         problem, group, total, partitions
    alarms      messages (alarms.py)
    notes       messages

Times are ISO 8601 in UTC, sizes are bytes. `sizes` counts files by size: [[upper bound, files], ...], in powers of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from kafka.errors import KafkaError
from pyarrow import parquet

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.lag import PartitionLag, partition_lags
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.report.alarms import alarms, notes
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.iceberg_tables import iceberg_place
from odradek.pipeline.state.accounting import OUTCOMES
from odradek.pipeline.state.delta_tables import table_at
from odradek.pipeline.state.ledger import Ledger, LedgerRow
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.selection import REDRIVE
from odradek.pipeline.variables import hidden

if TYPE_CHECKING:
    from odradek.pipeline.sinks.iceberg.tables import TablePlace

MOST_BATCHES = 1000
COUNTS = ("rows_in", "redriven", *OUTCOMES, "lost", "files_written", "bytes_written")

Facts = dict[str, Any]


def facts_of(settings: Settings, now: datetime, patience_ms: int) -> Facts | None:
    """Returns all facts, from the ledger, the tables and the broker. None if the ledger has no batch yet. If the broker
    is not available, `lag` has the problem. Raises PipelineError."""
    places = Places.of(settings)
    ledger = Ledger(places.ledger)
    recent = ledger.last_rows(MOST_BATCHES)
    if not recent:
        return None
    whole = ledger.content([*COUNTS, "started_at", "finished_at", "reasons", "redriven_reasons", "warnings"])
    totals: dict[str, int] = {name: pc.sum(whole[name]).as_py() for name in COUNTS}
    last = recent[-1]
    facts: Facts = {
        "name": settings.name,
        "generated_at": now.isoformat(timespec="seconds"),
        "totals": {"batches": whole.num_rows, **totals},
        "is_balanced": totals["rows_in"] + totals["redriven"] == sum(totals[name] for name in OUTCOMES),
        "recent": _recent(whole, now - duration(settings.alarm_period, "alarm-period")),
        "rate": {"last": _rate(last.rows_in, _seconds(last)), "mean": _rate(totals["rows_in"], _all_seconds(whole))},
        "watermark": _iso(next((row.watermark for row in reversed(recent) if row.job != REDRIVE), None)),
        "newest_event_time": _iso(last.newest_event_time),
        "reasons": _reasons(whole["reasons"].combine_chunks()),
        "redriven": _reasons(whole["redriven_reasons"].combine_chunks()),
        "warnings": _reasons(whole["warnings"].combine_chunks()),
        "batches": [_batch(row) for row in recent],
        "tables": dict(_tables(settings)),
        "lag": _lag(settings, last.end_offsets, patience_ms),
    }
    facts |= {"alarms": list(alarms(facts, settings)), "notes": list(notes(facts))}
    return cast(Facts, hidden(facts, settings.secrets))


def _recent(whole: pa.Table, since: datetime) -> dict[str, int]:
    """Returns the counts of the batches that ended since then."""
    recent = whole.filter(pc.greater_equal(whole["finished_at"], pa.scalar(since, whole["finished_at"].type)))
    return {name: pc.sum(recent[name]).as_py() or 0 for name in ("rows_in", "dead", "lost")}


def _batch(row: LedgerRow) -> Facts:
    left_out = ("start_offsets", "end_offsets", "topics")
    facts = {name: value for name, value in asdict(row).items() if name not in left_out}
    times = {name: _iso(getattr(row, name)) for name in ("started_at", "finished_at", "watermark", "newest_event_time")}
    seconds = _seconds(row)
    rate = _rate(row.rows_in, seconds)
    return {
        **facts,
        **times,
        "reasons": dict(row.reasons),
        "redriven_reasons": dict(row.redriven_reasons),
        "warnings": dict(row.warnings),
        "seconds": seconds,
        "rows_per_second": rate,
    }


def _seconds(row: LedgerRow) -> float:
    return round((row.finished_at - row.started_at).total_seconds(), 3)


def _all_seconds(whole: pa.Table) -> float:
    micros = pc.subtract(whole["finished_at"].cast(pa.int64()), whole["started_at"].cast(pa.int64()))
    return float(pc.sum(micros).as_py()) / 1_000_000


def _rate(rows: int, seconds: float) -> float:
    return round(rows / seconds, 1) if seconds > 0 else 0.0


def _reasons(maps: pa.MapArray) -> dict[str, int]:
    """Returns the count of each reason or rule, most frequent first."""
    counted = pa.table({"reason": maps.keys, "rows": maps.items}).group_by("reason").aggregate([("rows", "sum")])
    found = dict(zip(counted["reason"].to_pylist(), counted["rows_sum"].to_pylist(), strict=True))
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def _tables(settings: Settings) -> Iterable[tuple[str, Facts]]:
    for name, place in Places.of(settings).tables.items():
        table = table_at(place)
        if table is not None:
            yield name, _delta(place, table)
        elif (iceberg := iceberg_place(place, settings)) is not None:
            yield name, _iceberg(iceberg)
        elif place.is_local and place.path.is_dir():
            yield name, _parquet(place)


def _delta(place: Location, table: DeltaTable) -> Facts:
    files = pa.table(table.get_add_actions(flatten=True))
    counts = files.column("num_records").to_pylist()
    rows = None if None in counts else sum(counts)
    return _table(place, "delta", table.version(), files.column("size_bytes").to_pylist(), rows)


def _iceberg(place: TablePlace) -> Facts:
    from odradek.pipeline.sinks.iceberg.data_files import files_of
    from odradek.pipeline.sinks.iceberg.tables import version_of

    table = place.open()
    files = files_of(table)
    sizes, rows = [one.file_size_in_bytes for one in files], sum(one.record_count for one in files)
    return _table(place.place, "iceberg", version_of(table), sizes, rows)


def _parquet(place: Location) -> Facts:
    """Describes a directory that a job may be writing to: a file that vanishes is not counted."""
    sizes, rows = [], 0
    for file in place.path.glob("batch=*/**/*.parquet"):
        try:
            sizes.append(file.stat().st_size)
            rows += parquet.read_metadata(file).num_rows
        except FileNotFoundError:
            continue
    return _table(place, "parquet", None, sizes, rows)


def _table(place: Location, kind: str, version: int | None, sizes: Sequence[int], rows: int | None) -> Facts:
    by_size: dict[int, int] = {}
    for size in sizes:
        upper = 1 << max(size - 1, 1).bit_length()
        by_size[upper] = by_size.get(upper, 0) + 1
    return {
        "path": str(place),
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


def _lag(settings: Settings, processed: Offsets, patience_ms: int) -> Facts:
    """Returns the lag of each partition; if the broker is not available, the processed offsets and the problem."""
    problem = ""
    try:
        lags = partition_lags(settings, processed, patience_ms)
    except (KafkaError, PipelineError, OSError) as error:
        problem = f"{settings.bootstrap_server} does not return the end offsets: {error}"
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

"""`odradek pipeline compact`: merges small files in the tables and the ledger, and removes files of old versions.

It can run concurrently with an ingest and with readers, and does not start Spark. In tables that are partitioned by a
day, the days before the watermark are closed and compacted; other tables are compacted completely.

Plain Parquet tables are not compacted, which is an error. Their readers list directories and then open the files found:
in whatever order files are replaced, some reader would miss rows, read them twice, or miss a file.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TextIO

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.lock import alone
from odradek.pipeline.state.places import COMPACT_LOCK, Places


def run(settings: Settings, out: TextIO | None = None) -> int:
    """Compacts all existing tables, the ledger last. Raises PipelineError."""
    from odradek.pipeline.jobs.one_line import one_line

    with one_line("the compact failed"):
        _compact(settings, out or sys.stdout)
    return 0


def _compact(settings: Settings, out: TextIO) -> None:
    from odradek.pipeline.sinks.compaction import Compacted, compact_table, summary_lines
    from odradek.pipeline.sinks.iceberg_tables import iceberg_place
    from odradek.pipeline.state.delta_tables import table_at

    places = Places.of(settings)
    retention = duration(settings.compact_retention, "compact-retention")
    tables = {name: place for name, place in places.tables.items() if place.is_there()}
    if not tables:
        raise PipelineError(
            f"the pipeline {settings.name!r} has no tables in {settings.lake}",
            "run `odradek pipeline ingest` first, or set its lake, state and name",
        )
    target_size, plain = settings.compact_target_size, []
    with alone(places.state, COMPACT_LOCK, "another compact is running"):
        closed_before = _closed_before(settings, places)
        for name, place in tables.items():
            done: Compacted | None = None
            if table_at(place) is not None:
                done = compact_table(name, place, target_size, retention, closed_before)
            elif (iceberg := iceberg_place(place, settings)) is not None:
                from odradek.pipeline.sinks.iceberg.compaction import compact_iceberg

                done = compact_iceberg(name, iceberg, target_size, retention, closed_before)
            if done is None:
                plain.append(place.url)
            else:
                print(*summary_lines([done]), sep="\n", file=out)
    if plain:
        raise PipelineError(
            f"{' and '.join(plain)}: plain Parquet files cannot be merged while they may be read",
            "use sink = delta or iceberg, or write larger batches: a longer trigger, a higher max-offsets-per-trigger",
        )


def _closed_before(settings: Settings, places: Places) -> datetime | None:
    """Returns the watermark of the newest batch; without one, the time of that batch minus the delay."""
    from odradek.pipeline.state.ledger import Ledger

    newest = Ledger(places.ledger).newest()
    if newest is None:
        return None
    return newest.watermark or newest.finished_at - duration(settings.watermark_delay, "watermark-delay")

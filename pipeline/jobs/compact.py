"""`odradek pipeline compact`: few files of many in the tables and the ledger, and no files of versions long gone.

Runs beside an ingest and its readers, and starts no Spark. Of tables that are partitioned by a day, the days before
the watermark are closed and compacted; others are as a whole.

Plain Parquet tables are left alone, with an error. Their readers list directories and then open what they found:
whatever way files are exchanged, some reader would miss rows, see them twice, or find a file gone.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings


def run(settings: Settings, out: TextIO | None = None) -> int:
    """Compacts every table that there is, the ledger last. Raises PipelineError."""
    from deltalake import DeltaTable

    from odradek.pipeline.compaction import compact_table, duration, told

    places = Places.of(settings)
    retention = duration(settings.compact_retention, "compact-retention")
    tables = {"rows": places.rows, "dead_letters": places.dead_letters, "windows": places.windows}
    tables = {name: path for name, path in {**tables, "batches": places.ledger}.items() if path.is_dir()}
    plain = [str(path) for path in tables.values() if not DeltaTable.is_deltatable(str(path))]
    if not tables:
        raise PipelineError(
            f"the pipeline {settings.name!r} has no tables in {places.rows.parent}",
            "run `odradek pipeline ingest` first, or give the lake, state and name that it has",
        )
    places.state.mkdir(parents=True, exist_ok=True)
    with _alone(places.state / "compact.lock"):
        closed_before = _closed_before(settings, places)
        for name, path in tables.items():
            if str(path) not in plain:
                done = compact_table(name, path, settings.compact_target_size, retention, closed_before)
                print(*told([done]), sep="\n", file=out or sys.stdout)
    if plain:
        raise PipelineError(
            f"{' and '.join(plain)}: plain Parquet files cannot be put together while somebody may read them",
            "use sink = delta, or write larger batches: a longer trigger, a greater max-offsets-per-trigger",
        )
    return 0


def _closed_before(settings: Settings, places: Places) -> datetime | None:
    """The watermark of the newest batch; where there is none, the time of that batch less the delay."""
    from odradek.pipeline.compaction import duration
    from odradek.pipeline.ledger import Ledger

    rows = Ledger(places.ledger).rows()
    if not rows:
        return None
    newest = max(rows, key=lambda row: row.finished_at)
    return newest.watermark or newest.finished_at - duration(settings.watermark_delay, "watermark-delay")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a lock that ends with the process, however that ends. Raises PipelineError if another has it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another compact is at work ({path} is locked)", "wait for it") from None
        yield

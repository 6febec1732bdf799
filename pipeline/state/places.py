"""Where a pipeline keeps its tables and its state.

LAKE/NAME                   the good rows
LAKE/NAME_dead_letters      what could not be taken, and why
LAKE/NAME_late              rows that came too late, where late-rows is keep
LAKE/NAME_windows           counts and sums over event time, partitioned by window_day
STATE = LAKE/_NAME
  batches                   the ledger: a row for each batch, a Delta table
  plan-N.json               what batch N reads and how it judges, until the ledger has it
  backfill.json             where the backfill ends and the ingest begins
  job.lock                  held by the ingest or backfill that is at work
  compact.lock              held by the compaction that is at work
  report.html report.json
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.pipeline.settings import Settings
from odradek.pipeline.state.location import Location, location_of

JOB_LOCK, COMPACT_LOCK = "job.lock", "compact.lock"


@dataclass(frozen=True, slots=True)
class Places:
    """The places of one pipeline."""

    rows: Location
    dead_letters: Location
    late: Location
    windows: Location
    state: Location

    @classmethod
    def of(cls, settings: Settings) -> Places:
        """The places that the settings name. Raises PipelineError where tables could not be there."""
        lake = location_of("lake", settings.lake, settings.store)
        state = location_of("state", settings.state, settings.store) if settings.state else lake / f"_{settings.name}"
        dead_letters, late, windows = (lake / f"{settings.name}_{kind}" for kind in ("dead_letters", "late", "windows"))
        return cls(lake / settings.name, dead_letters, late, windows, state)

    @property
    def ledger(self) -> Location:
        return self.state / "batches"

    @property
    def tables(self) -> dict[str, Location]:
        """All tables that there may be, the ledger last, by the names that people see."""
        rows = {"rows": self.rows, "dead_letters": self.dead_letters, "late": self.late, "windows": self.windows}
        return {**rows, "batches": self.ledger}

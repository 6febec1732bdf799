"""The locations of a pipeline's tables and state.

LAKE/NAME                   the good rows
LAKE/NAME_dead_letters      rejected records, with the reason
LAKE/NAME_redriven          which dead letters have been redriven, if any was
LAKE/NAME_late              rows that were too late, if late-rows is keep
LAKE/NAME_windows           counts and sums over event time, partitioned by window_day
STATE = LAKE/_NAME
  batches                   the ledger: a row for each batch, a Delta table
  plan-N.json               what batch N reads and how it judges, until the ledger has the batch
  schemas.json              the schemas of the registry that the pipeline knows, and the columns of all of them
  backfill.json             the offsets where the backfill ends and the ingest starts
  job.lock                  held by the running ingest, backfill or redrive
  compact.lock              held by the running compaction
  report.html report.json
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.pipeline.settings import Settings
from odradek.pipeline.state.location import Location, location_of

JOB_LOCK, COMPACT_LOCK = "job.lock", "compact.lock"
SCHEMAS = "schemas.json"


@dataclass(frozen=True, slots=True)
class Places:
    """The locations of one pipeline."""

    rows: Location
    dead_letters: Location
    late: Location
    windows: Location
    redriven: Location
    state: Location

    @classmethod
    def of(cls, settings: Settings) -> Places:
        """Returns the locations that the settings name. Raises PipelineError if tables cannot be stored there."""
        lake = location_of("lake", settings.lake, settings.store)
        state = location_of("state", settings.state, settings.store) if settings.state else lake / f"_{settings.name}"
        kinds = ("dead_letters", "late", "windows", "redriven")
        dead_letters, late, windows, redriven = (lake / f"{settings.name}_{kind}" for kind in kinds)
        return cls(lake / settings.name, dead_letters, late, windows, redriven, state)

    @property
    def ledger(self) -> Location:
        return self.state / "batches"

    @property
    def tables(self) -> dict[str, Location]:
        """All tables that the pipeline may have, by the names that users see. The ledger is last."""
        rows = {"rows": self.rows, "dead_letters": self.dead_letters, "late": self.late, "windows": self.windows}
        return {**rows, "redriven": self.redriven, "batches": self.ledger}

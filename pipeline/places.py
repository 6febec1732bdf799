"""Where a pipeline keeps its tables and its state.

LAKE/NAME                   the good rows
LAKE/NAME_dead_letters      what could not be taken, and why
LAKE/NAME_windows           counts and sums over event time
STATE = LAKE/_NAME
  batches                   the ledger: a row for each batch, a Delta table
  checkpoint-N              Spark's, and query.json: of which query; N counts the times that it had to begin anew
  generation-N.json         where that one begins, and the ids of the topics that it reads
  handover.json             where the backfill ends and the ingest begins
  report.html report.json
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.settings import Settings


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of one pipeline."""

    rows: Path
    dead_letters: Path
    windows: Path
    state: Path

    @classmethod
    def of(cls, settings: Settings) -> Places:
        """The paths that the settings name."""
        lake = Path(settings.lake).absolute()
        state = Path(settings.state).absolute() if settings.state else lake / f"_{settings.name}"
        return cls(
            lake / settings.name, lake / f"{settings.name}_dead_letters", lake / f"{settings.name}_windows", state
        )

    @property
    def ledger(self) -> Path:
        return self.state / "batches"

    @property
    def handover(self) -> Path:
        return self.state / "handover.json"

    def checkpoint(self, generation: int) -> Path:
        return self.state / f"checkpoint-{generation}"

    def generation(self, number: int) -> Path:
        return self.state / f"generation-{number}.json"

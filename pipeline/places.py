"""Where a pipeline keeps its tables and its state.

LAKE/NAME                   the good rows
LAKE/NAME_dead_letters      what could not be taken, and why
LAKE/NAME_windows           counts and sums over event time
STATE = LAKE/_NAME
  batches                   the ledger: a row for each batch, a Delta table
  checkpoint-N              Spark's, and query.json: of which query; N counts the times that it had to begin anew
  generation-N.json         where that one begins, and the ids of the topics that it reads
  ingest.lock                 held by the ingest or backfill that is at work
  handover.json             where the backfill ends and the ingest begins
  report.html report.json
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings

UNFIT = re.compile(r"[\x00-\x1f\\\[\]{}*?^|]|%[0-9A-Fa-f]{2}")
"""What Spark takes for a pattern of paths, or deltalake for something else, or does not take."""


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of one pipeline."""

    rows: Path
    dead_letters: Path
    windows: Path
    state: Path

    @classmethod
    def of(cls, settings: Settings) -> Places:
        """The paths that the settings name. Raises PipelineError where tables could not be there."""
        lake = _directory("lake", settings.lake)
        state = _directory("state", settings.state) if settings.state else lake / f"_{settings.name}"
        return cls(
            lake / settings.name, lake / f"{settings.name}_dead_letters", lake / f"{settings.name}_windows", state
        )

    @property
    def ledger(self) -> Path:
        return self.state / "batches"

    @property
    def handover(self) -> Path:
        return self.state / "handover.json"

    @property
    def lock(self) -> Path:
        return self.state / "ingest.lock"

    def checkpoint(self, generation: int) -> Path:
        return self.state / f"checkpoint-{generation}"

    def generation(self, number: int) -> Path:
        return self.state / f"generation-{number}.json"


def _directory(setting: str, text: str) -> Path:
    if not text.strip():
        raise PipelineError(f"{setting} is empty", "name a directory; '.' is this one")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        raise PipelineError(f"{setting} {text!r} is no path", "name a directory; object stores are not supported")
    path = Path(text).expanduser().absolute()
    if found := UNFIT.search(str(path)):
        raise PipelineError(
            f"{setting} {str(path)!r} has {found[0]!r}, which readers of tables do not take as it is",
            "name another directory",
        )
    return path

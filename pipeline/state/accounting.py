"""Counts the outcomes of a batch's records, so that no loss goes unnoticed:

    rows_in = good + dead + duplicates + late

`lost` is not part of the sum: it counts the offsets that were deleted before the pipeline could read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Counts:
    """The record counts of one batch. `reasons` splits `dead` by reason."""

    rows_in: int
    good: int
    dead: int
    duplicates: int = 0
    late: int = 0
    lost: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def check(self, batch: object) -> None:
        """Raises PipelineError unless every record is accounted for. Call it before anything is committed."""
        outcomes = self.good + self.dead + self.duplicates + self.late
        if self.rows_in != outcomes:
            raise PipelineError(
                f"batch {batch} does not add up: {self.rows_in} records in, but {self.good} good + {self.dead} dead + "
                f"{self.duplicates} duplicates + {self.late} late are {outcomes}; nothing of it was committed",
                "start the job again to repeat the batch",
            )

"""What became of the records of a batch. Nothing goes missing unnoticed:

    rows_in = good + dead + duplicates + late

`lost` stands beside the sum: offsets that were gone before anybody could read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Counts:
    """Records of one batch; `reasons` divides the dead."""

    rows_in: int
    good: int
    dead: int
    duplicates: int = 0
    late: int = 0
    lost: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def check(self, batch: object) -> None:
        """Raises PipelineError unless every record is accounted for. To be called before anything is committed."""
        outcomes = self.good + self.dead + self.duplicates + self.late
        if self.rows_in != outcomes:
            raise PipelineError(
                f"batch {batch} does not add up: {self.rows_in} records in, but {self.good} good + {self.dead} dead + "
                f"{self.duplicates} duplicates + {self.late} late are {outcomes}; nothing of it was committed",
                "start again, the batch is then repeated",
            )

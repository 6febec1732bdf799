"""The keys that a batch changes, for mode = upsert: a table's rows with these keys are replaced or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.pipeline.parse.changes import DELETED
from odradek.pipeline.parse.transforms import GOOD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW = 2_000_000
"""The maximum number of keys that are broadcast."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """`keys`: the key columns, each key once. `upserts`, `deletes`: how many of them get a row, or lose it."""

    keys: DataFrame
    upserts: int
    deletes: int

    @property
    def few(self) -> bool:
        """Whether the keys are few enough to broadcast."""
        return self.upserts + self.deletes <= FEW

    def superseded(self, by_outcome: Mapping[str, int]) -> int:
        """Returns how many of a batch's changes are not the last of their key."""
        return by_outcome.get(GOOD, 0) + by_outcome.get(DELETED, 0) - self.upserts - self.deletes

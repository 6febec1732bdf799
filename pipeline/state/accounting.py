"""Counts the outcomes of a batch's records, so that no loss goes unnoticed:

    rows_in + redriven = good + dead + duplicates + late + superseded + deletes + filtered + dropped

`redriven` counts the dead letters of earlier batches that a redrive has judged again and that are dead no more. They
are rows of its batch like `rows_in`, which is 0 there. Of all batches, `dead - redriven` letters are still dead.
`superseded` and `deletes` are 0 unless mode is upsert. `lost` is not part of the sum: it counts the offsets that were
deleted before the pipeline could read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.pipeline.errors import PipelineError

OPTIONAL = ("superseded", "deletes", "filtered", "dropped")
"""The counts that are 0, and not shown, unless a setting asks for them: mode = upsert, where and transform."""
OUTCOMES = ("good", "dead", "duplicates", "late", *OPTIONAL)
"""The counts whose sum is rows_in + redriven."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The record counts of one batch. `reasons` splits `dead` by reason. `superseded`: rows and tombstones that a later
    record of the batch with the same key replaces. `deletes`: tombstones that no later record replaces. `filtered`:
    left out by `where`. `dropped`: left out by `transform`. `warnings`: rows that violate a `warn` rule, by rule.
    `redriven_reasons` splits `redriven` by the reason of the dead letter. `still_dead`: the letters that a redrive has
    judged again in vain, by their present reason; they are no part of the sum."""

    rows_in: int
    good: int
    dead: int
    duplicates: int = 0
    late: int = 0
    superseded: int = 0
    deletes: int = 0
    filtered: int = 0
    dropped: int = 0
    lost: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    warnings: Mapping[str, int] = field(default_factory=dict)
    redriven: int = 0
    redriven_reasons: Mapping[str, int] = field(default_factory=dict)
    still_dead: Mapping[str, int] = field(default_factory=dict)

    def check(self, batch: object) -> None:
        """Raises PipelineError unless every record is accounted for. Call it before anything is committed."""
        outcomes = {name: getattr(self, name) for name in OUTCOMES}
        total = sum(outcomes.values())
        if self.rows_in + self.redriven != total:
            found = " + ".join(f"{count} {name}" for name, count in outcomes.items() if count or name not in OPTIONAL)
            records = f"{self.redriven} dead letters redriven" if self.redriven else f"{self.rows_in} records in"
            raise PipelineError(
                f"batch {batch} does not add up: {records}, but {found} are {total}; nothing of it was committed",
                "start the job again to repeat the batch",
            )


@dataclass(slots=True)
class Tally:
    """The counts of a batch's records, before any is committed. `first`: the first offset that was read of each
    partition. `newest_us`: the latest event time of good and late rows, in microseconds since 1970; None without any.
    `buckets`: the event times of the good rows, in the unit of the caller."""

    rows_in: int = 0
    by_outcome: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    first: dict[tuple[str, int], int] = field(default_factory=dict)
    newest_us: int | None = None
    buckets: set[int] = field(default_factory=set)

    def add(
        self, outcome: str, reason: str | None, place: tuple[str, int], rows: int, first: int, newest_us: int | None
    ) -> None:
        """Counts rows of one outcome, reason and partition. `reason`: that of dead and filtered rows, which have no
        event time."""
        self.rows_in += rows
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0) + rows
        if reason is not None and outcome == "dead":
            self.reasons[reason] = self.reasons.get(reason, 0) + rows
        if newest_us is not None and (self.newest_us is None or newest_us > self.newest_us):
            self.newest_us = newest_us
        self.first[place] = min(self.first.get(place, first), first)

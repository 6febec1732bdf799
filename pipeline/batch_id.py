"""What names a batch, for as long as its tables exist."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of one job of a pipeline. `generation` counts the checkpoints that the job has had, from 1; `number`
    is Spark's id of the batch within one of them, from 0."""

    pipeline: str
    job: str
    generation: int
    number: int

    def app(self, table: str) -> str:
        """The id under which a table's log holds the number of the last batch that was written (Delta's `txn`)."""
        return f"{self.pipeline}/{self.job}/{self.generation}/{table}"

    def __str__(self) -> str:
        return f"{self.job}-{self.generation}-{self.number:08d}"

"""The identity of a batch, for as long as its tables exist."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchId:
    """One batch of a pipeline. Batches are numbered from 0 in the order in which they are read, across all jobs."""

    pipeline: str
    number: int

    def app(self, table: str) -> str:
        """The application id under which a table keeps the number of the last written batch."""
        return f"{self.pipeline}/{table}"

    def __str__(self) -> str:
        return f"{self.number:08d}"

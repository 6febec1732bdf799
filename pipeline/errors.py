"""The exceptions that end a job for a reason that its user can fix."""

from __future__ import annotations

ANEW = "move its tables and its state away to start over, or set another name"
"""The remedy where tables and state do not belong together."""
SHARED_LAKE = "put the lake where the driver and all executors can access it: a shared directory, or an object store"
"""The remedy where an executor does not share the driver's lake."""


class Stopped(Exception):
    """The job was asked to stop, so its next step does not start."""


class PipelineError(Exception):
    """One line: the problem, and its remedy."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy

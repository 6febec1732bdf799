"""What a job ends with when something is wrong that its user can mend."""

from __future__ import annotations

ANEW = "move its tables and its state away to begin anew, or set another name"
"""The remedy where tables and state do not belong together."""
SHARED_LAKE = "put the lake where the driver and all executors see it: a shared directory, or an object store"
"""The remedy where an executor has a lake of its own."""


class Stopped(Exception):
    """Somebody has asked the job to stop, so what was to come does not begin."""


class PipelineError(Exception):
    """One line: what is wrong, and what to do about it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy

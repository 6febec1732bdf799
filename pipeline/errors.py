"""What a job ends with when something is wrong that its user can mend."""

from __future__ import annotations


class PipelineError(Exception):
    """One line: what is wrong, and what to do about it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy

"""A finding of the doctor: the state of one subject, and a remedy."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.pipeline.errors import PipelineError

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`state`: OK; WARNING: the job runs, and fixes or tolerates it; PROBLEM: the job does not run."""

    subject: str
    state: str
    says: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {OK: "ok     ", WARNING: "warning", PROBLEM: "PROBLEM"}[self.state]
        return f"{mark}  {self.subject}: {self.says}" + (f"\n         -> {self.remedy}" if self.remedy else "")


def problem(subject: str, error: PipelineError) -> Finding:
    """Returns the finding for an error that would end a job."""
    return Finding(subject, PROBLEM, error.problem, error.remedy)

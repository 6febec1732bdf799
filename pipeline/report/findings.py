"""What the doctor says of one thing: how it is, and what to do if it is not well."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.pipeline.errors import PipelineError

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`state`: OK; WARNING, the job runs, and mends it or does without; PROBLEM, the job does not run."""

    subject: str
    state: str
    says: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {OK: "ok     ", WARNING: "warning", PROBLEM: "PROBLEM"}[self.state]
        return f"{mark}  {self.subject}: {self.says}" + (f"\n         -> {self.remedy}" if self.remedy else "")


def problem(subject: str, error: PipelineError) -> Finding:
    """What a job would end with."""
    return Finding(subject, PROBLEM, error.problem, error.remedy)

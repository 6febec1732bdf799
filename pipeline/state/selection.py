"""Which dead letters a redrive takes: those of some reasons, whose records have timestamps in a range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from odradek.pipeline.errors import PipelineError

REDRIVE = "redrive"
"""The job, in plans and in the ledger."""


@dataclass(frozen=True, slots=True)
class Selection:
    """`reasons`: of the dead letters; none: any. `since` (inclusive), `until` (exclusive): of the records' timestamps;
    None: any."""

    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def content(self) -> dict[str, Any]:
        """Returns the selection as a plan keeps it."""
        times = {"since": self.since, "until": self.until}
        return {"reasons": list(self.reasons), **{name: one and one.isoformat() for name, one in times.items()}}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Selection:
        """Reads what `content` has returned. Raises KeyError, TypeError, ValueError."""
        since, until = (None if content[one] is None else datetime.fromisoformat(content[one]) for one in _TIMES)
        return cls(tuple(str(one) for one in content["reasons"]), since, until)


_TIMES = ("since", "until")


def time_of(option: str, text: str) -> datetime | None:
    """Returns the time that a user has written, "": None. Raises PipelineError unless it has a time zone."""
    if not text:
        return None
    wanted = f"{option} {text!r} is not a time with a time zone", "write it as in 2026-11-29T08:30:00Z"
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise PipelineError(*wanted) from error
    if time.tzinfo is None:
        raise PipelineError(*wanted)
    return time

"""Durations as written in settings: '10 minutes', '1 hour 30 minutes'."""

from __future__ import annotations

import re
from datetime import timedelta

from odradek.pipeline.errors import PipelineError

UNITS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_PART = r"(\d+) *([a-z]+?)s?\b"


def duration(text: str, setting: str) -> timedelta:
    """Parses a duration in Spark's syntax. Raises PipelineError."""
    plain = text.lower().strip().removeprefix("interval ")
    parts = re.findall(_PART, plain)
    if not parts or re.sub(_PART, "", plain).strip() or any(unit not in UNITS for _, unit in parts):
        raise PipelineError(f"{setting} is {text!r}, not a duration", "set it to, say, '10 minutes' or '7 days'")
    return timedelta(seconds=sum(int(count) * UNITS[unit] for count, unit in parts))

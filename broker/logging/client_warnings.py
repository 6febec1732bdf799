"""Warnings about client errors: one line each, without traceback, at a limited rate (line_rate.py). A line costs 0.1 to
0.5 ms of the event loop, and hundreds of clients may fail in the same turn.
"""

from __future__ import annotations

from typing import Any

import structlog

from odradek.broker.logging.line_rate import LineRate
from odradek.timer import Clock

log = structlog.get_logger("broker.network")


class ClientWarnings:
    def __init__(self, clock: Clock, *, burst: int = 200, per_second: int = 100) -> None:
        self._rate = LineRate(clock, burst=burst, per_second=per_second)

    def warn(self, event: str, **details: Any) -> None:
        """Logs one line at level warning, or counts it as suppressed."""
        if self._rate.admits(details):
            log.warning(event, **details)

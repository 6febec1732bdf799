"""Closing all logs of a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.protocol.errors import ProtocolError
from odradek.storage.log import Log

LOGS_AT_A_TIME = 64
"""Each log has a few files open while it is synced."""

RunAll = Callable[[Sequence[Callable[[], None]]], None]
"""Calls all functions, which do not raise, in any order or concurrently, and returns when all have returned."""


def one_after_the_other(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def close_all(logs: list[Log], run_all: RunAll) -> list[tuple[Log, str]]:
    """Closes all logs in groups. Returns the logs that failed to close, or had failed before, with the reason."""
    failed = []
    for start in range(0, len(logs), LOGS_AT_A_TIME):
        closings = [log.closing() for log in logs[start : start + LOGS_AT_A_TIME]]
        run_all([closing.run for closing in closings])
        for log, closing in zip(logs[start:], closings, strict=False):
            try:
                closing.finish()
            except ProtocolError as error:  # logged already
                failed.append((log, str(error.__cause__ or error)))
            else:
                if log.failure is not None:
                    failed.append((log, str(log.failure)))
    return failed

"""Closing all logs of a broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from odradek.protocol.errors import ProtocolError
from odradek.storage.files import cause_of
from odradek.storage.log.log import Log

LOGS_AT_A_TIME = 64
"""Each log has a few files open while it is synced."""

T = TypeVar("T")

Syncs = Generator[list[Callable[[], None]], None, T]
"""Yields groups of functions that do not raise. Each group is to be called before the generator continues, in any order
or concurrently."""


def one_after_the_other(groups: Syncs[T]) -> T:
    """Calls all functions and returns the generator's value."""
    while True:
        try:
            functions = next(groups)
        except StopIteration as end:
            value: T = end.value
            return value
        for function in functions:
            function()


def close_all(logs: list[Log]) -> Syncs[list[tuple[Log, str]]]:
    """Closes all logs in groups. Returns the logs that failed to close, or had failed before, with the reason."""
    failed = []
    for start in range(0, len(logs), LOGS_AT_A_TIME):
        closings = [log.closing() for log in logs[start : start + LOGS_AT_A_TIME]]
        yield [closing.run for closing in closings]
        for log, closing in zip(logs[start:], closings, strict=False):
            try:
                closing.finish()
            except ProtocolError as error:  # logged already
                failed.append((log, str(cause_of(error) or error)))
            else:
                if log.folder.failure is not None:
                    failed.append((log, str(log.folder.failure)))
    return failed

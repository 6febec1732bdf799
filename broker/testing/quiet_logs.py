"""While a broker runs for a test, only warnings and errors are logged, to stderr, unless the program has configured
structlog.
"""

from __future__ import annotations

import logging
import sys
import threading

import structlog

from odradek.broker.logging.structured_logging import for_terminal


class _StandardError:
    """Writes to the current sys.stderr, which test runners replace for each test."""

    def msg(self, line: str) -> None:
        print(line, file=sys.stderr)

    warning = warn = error = critical = exception = fatal = msg


class _WarningsOnly:
    """While a broker runs, logs only warnings and errors, unless the program has configured structlog.

    structlog's configuration applies to the whole process, so the last of several brokers restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers = 0

    def __enter__(self) -> None:
        with self._lock:
            self._brokers += 1
            if not structlog.is_configured():
                warnings = structlog.make_filtering_bound_logger(logging.WARNING)
                *processors, renderer = structlog.get_config()["processors"]
                structlog.configure(
                    processors=[*processors, for_terminal, renderer],
                    wrapper_class=warnings,
                    logger_factory=_standard_error,
                )

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._brokers -= 1
            if self._brokers == 0 and structlog.get_config()["logger_factory"] is _standard_error:
                structlog.reset_defaults()


def _standard_error(*_: object) -> _StandardError:
    return _StandardError()


WARNINGS_ONLY = _WarningsOnly()

"""What brokers within a test log, and the metadata store within a command, unless the program has configured structlog:
errors and warnings, to stderr. A cluster of a test that has started keeps the warnings, and a failed wait shows the
latest. What the test kit itself says of a test is shown in any case.

structlog's configuration applies to the whole process: every running cluster keeps the warnings of all brokers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator

import structlog

from odradek.broker.logging.structured_logging import for_terminal

KEPT_WARNINGS = 200
OF_KIT = "testing"
"""The logger of the test kit."""
LatestWarnings = deque[str]
"""The latest warnings of a cluster's brokers, a line each, the oldest first."""


def no_warnings() -> LatestWarnings:
    return LatestWarnings(maxlen=KEPT_WARNINGS)


class _Log:
    """Writes errors to the current sys.stderr, which test runners replace for each test."""

    def __init__(self, clusters: list[LatestWarnings], *, is_of_kit: bool) -> None:
        self._clusters = clusters
        self._is_of_kit = is_of_kit

    def msg(self, line: str) -> None:
        print(line, file=sys.stderr)

    error = critical = exception = fatal = msg

    def warning(self, line: str) -> None:
        for warnings in tuple(self._clusters):
            warnings.append(line)
        if self._is_of_kit or not self._clusters:
            self.msg(line)

    warn = warning


class _QuietLogs:
    """Configures structlog while brokers run. The last of several brokers and clusters restores it."""

    def __init__(self) -> None:
        self._users = 0
        self._clusters: list[LatestWarnings] = []
        self._new_lock()
        os.register_at_fork(after_in_child=self._new_lock)

    def _new_lock(self) -> None:
        """Another thread may have held the lock when the process was forked."""
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """While a broker or a command runs: errors and warnings are shown."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    @contextlib.contextmanager
    def kept_in(self, warnings: LatestWarnings) -> Iterator[None]:
        """While a cluster runs: warnings are kept."""
        self._clusters.append(warnings)
        try:
            yield
        finally:
            # Two clusters' warnings may be equal: remove this one's.
            self._clusters[:] = [each for each in self._clusters if each is not warnings]

    def _begin(self) -> None:
        with self._lock:
            self._users += 1
            if not structlog.is_configured():
                *processors, renderer = structlog.get_config()["processors"]
                structlog.configure(
                    processors=[*processors, for_terminal, renderer],
                    wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
                    logger_factory=self._log,
                )

    def _end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and structlog.get_config()["logger_factory"] == self._log:
                structlog.reset_defaults()

    def _log(self, *names: object) -> _Log:
        return _Log(self._clusters, is_of_kit=names == (OF_KIT,))


QUIET_LOGS = _QuietLogs()

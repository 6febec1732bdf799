"""The progress of a running job: on a terminal a status line that is rewritten, elsewhere a JSON line for each batch.

`open_progress` routes the process's logs to the same stream, above the status line. Like the broker's, a log line has
time, level, logger and event.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TextIO, cast

import structlog

from odradek.pipeline.report.metrics import Metrics
from odradek.pipeline.state.accounting import OPTIONAL, OUTCOMES
from odradek.pipeline.variables import hidden

CLEAR_LINE = "\r\x1b[2K"


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A committed batch. The counts are those of the ledger.

    `lag`: unread offsets in the topics after the batch; None if not requested."""

    job: str
    batch_id: int
    rows_in: int
    good: int
    dead: int
    duplicates: int
    late: int
    duration_s: float
    lost: int = 0
    lag: int | None = None
    watermark: datetime | None = None
    superseded: int = 0
    deletes: int = 0
    filtered: int = 0
    dropped: int = 0
    redriven: int = 0

    @property
    def rows_per_second(self) -> float:
        return self.rows_in / self.duration_s if self.duration_s > 0 else 0.0


class Progress:
    """Shows batches and their totals. Thread-safe: one thread reports batches, others log. `metrics`: those of the same
    jobs."""

    def __init__(self, stream: TextIO, columns: Callable[[], int]) -> None:
        self._stream = stream
        self._columns = columns
        self._is_terminal = stream.isatty()
        self._line = ""
        self._drawing = threading.RLock()
        self._totals = dict.fromkeys((*OUTCOMES, "lost", "redriven"), 0)
        self._log = structlog.get_logger("pipeline.progress")
        self.metrics = Metrics()

    def batch(self, done: BatchDone) -> None:
        """Shows a committed batch."""
        for name in self._totals:
            self._totals[name] += getattr(done, name)
        if self._is_terminal:
            self._draw(self._status_line(done))
            return
        shown = {name: value for name, value in asdict(done).items() if value or name not in (*OPTIONAL, "redriven")}
        details = {**shown, "duration_s": round(done.duration_s, 3)}
        details["watermark"] = done.watermark.isoformat() if done.watermark else None
        self._log.info("batch", **details, rows_per_second=round(done.rows_per_second))

    def waiting(self, doing: str) -> None:
        """Shows a step without numbers ("starting Spark"), on a terminal only."""
        if self._is_terminal:
            self._draw(doing)

    def write(self, line: str) -> None:
        """Writes a log line above the status line. A failure to write does not stop the job."""
        try:
            with self._drawing:
                self._stream.write(f"{CLEAR_LINE if self._line else ''}{line}\n")
                self._draw(self._line)
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Keeps the last status line, and moves to the next line."""
        if self._line:
            self._stream.write("\n")
            self._line = ""

    def _draw(self, line: str) -> None:
        with self._drawing:
            self._line = line
            if line:
                self._stream.write(f"{CLEAR_LINE}{line[: max(self._columns() - 1, 1)]}")
            self._stream.flush()

    def _status_line(self, done: BatchDone) -> str:
        names = {"duplicates": "dup"}
        counts = [
            f"{names.get(name, name)} {count:,}"
            for name, count in self._totals.items()
            if count or name not in ("lost", "redriven", *OPTIONAL)
        ]
        lag = [] if done.lag is None else [f"lag {done.lag:,}"]
        of = structlog.contextvars.get_contextvars().get("pipeline", "")
        return "  ".join(
            [
                f"{done.job} {of} batch {done.batch_id}" if of else f"{done.job} batch {done.batch_id}",
                f"{done.rows_per_second:,.0f} rows/s",
                *counts,
                *lag,
            ]
        )


@contextmanager
def open_progress(
    stream: TextIO | None = None,
    columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    secrets: frozenset[str] = frozenset(),
) -> Iterator[Progress]:
    """Shows progress and the process's logs on `stream` (default: stderr) within the context, without the secrets."""
    progress = Progress(sys.stderr if stream is None else stream, columns)
    before = structlog.get_config()
    bridge = _StandardLibraryHandler(logging.WARNING)
    structlog.configure(
        processors=_processors((sys.stderr if stream is None else stream).isatty(), secrets),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *names: _Output(progress, *names),
        cache_logger_on_first_use=False,
    )
    logging.getLogger().addHandler(bridge)
    try:
        yield progress
    finally:
        logging.getLogger().removeHandler(bridge)
        structlog.configure(**before)
        progress.close()


def _processors(is_terminal: bool, secrets: frozenset[str]) -> list[structlog.typing.Processor]:
    stamped: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _in_order,
        structlog.processors.format_exc_info,
        lambda _logger, _method, event: cast(structlog.typing.EventDict, hidden(event, secrets)),
    ]
    if not is_terminal:
        return [*stamped, structlog.processors.JSONRenderer(default=str)]
    plain = structlog.dev.plain_traceback
    return [
        *stamped,
        structlog.dev.ConsoleRenderer(colors=True, exception_formatter=plain, sort_keys=False, pad_event_to=0),
    ]


class _Output:
    """The output object of structlog for one logger name."""

    def __init__(self, progress: Progress, name: str = "pipeline") -> None:
        self.name = name
        self.debug = self.info = self.warning = self.error = self.critical = self.exception = self.msg = progress.write


def _in_order(logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    first = {name: event.pop(name) for name in ("timestamp", "level")}
    return {**first, "logger": logger.name, "event": event.pop("event"), **event}


class _StandardLibraryHandler(logging.Handler):
    """Forwards log records of libraries that use the standard library's logging, from WARNING up."""

    def emit(self, record: logging.LogRecord) -> None:
        exc_info = record.exc_info if record.exc_info and record.exc_info[0] is not None else None
        log = structlog.get_logger(record.name)
        details = {} if exc_info is None else {"exc_info": exc_info}
        (log.error if record.levelno >= logging.ERROR else log.warning)(record.getMessage(), **details)

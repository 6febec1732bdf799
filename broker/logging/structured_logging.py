"""Logging: one event per line on stderr, as text on a terminal and as JSON elsewhere.

A line has a time, a level, a logger and an event with details: `log.info("topic created", topic="orders")`. Loggers are
named after packages (`structlog.get_logger("broker.network")`) and form a tree along the dots, with `root` at the top.
A logger's level is its own, or else that of its nearest ancestor with one. Levels can change while the broker runs
(KIP-412: the BROKER_LOGGER resource of DescribeConfigs and IncrementalAlterConfigs). A call below the level costs one
comparison.

Many details come from clients, whose names may have 32 KB and number in the thousands: a text is cut after
LONGEST_DETAIL characters, a list after MOST_ITEMS items. Tracebacks are longer. On a terminal, characters that it might
interpret are escaped (`printable.py`); JSON escapes them itself.

Records that libraries log through the standard library are formatted in the same way, from WARN up.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

from odradek.broker.logging.printable import printable, printable_lines

ROOT = "root"
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""The level names that Kafka's tools use, and their ranks."""
FIRST_LOGGERS = ("broker", "controller", "purgatory", "storage", "timer")
"""Loggers that exist from the start, so that their levels can be set before anything is logged below them."""
LONGEST_DETAIL = 1000
MOST_ITEMS = 20
_NAMES = {rank: name for name, rank in LEVELS.items()}
_METHOD_NAMES = {"warning": "warn", "exception": "error", "critical": "fatal"}


def configure_logging(
    wall_ms: Callable[[], int],
    *,
    stream: TextIO | None = None,
    level: str = "INFO",
    as_json: bool | None = None,
    is_final: bool = True,
) -> Loggers:
    """Sends all logs of the process to `stream` (default: stderr), from `level` up; as JSON unless it is a terminal.

    `wall_ms`: the time in milliseconds since 1970. `is_final`: loggers cache this configuration. That makes calls below
    the level cheap, but a later call of this function does not reach such loggers. Returns the loggers, whose levels
    can be changed.
    """
    stream = sys.stderr if stream is None else stream
    if as_json is None:
        as_json = not stream.isatty()
    loggers = Loggers(stream, level)
    structlog.configure(
        processors=[
            _Stamp(wall_ms),
            _shorten,
            structlog.processors.format_exc_info if as_json else for_terminal,
            structlog.processors.JSONRenderer() if as_json else _console_renderer(),
        ],
        wrapper_class=FilteredLogger,
        logger_factory=loggers,
        cache_logger_on_first_use=is_final,
    )
    _bridge_standard_library()
    return loggers


def current_loggers() -> Loggers | None:
    """Returns the loggers made by `configure_logging`, or None if the host program has configured structlog itself."""
    factory = structlog.get_config()["logger_factory"]
    return factory if isinstance(factory, Loggers) else None


def _shorten(_logger: Any, _method: str, details: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in details.items():
        if isinstance(value, (str, list, tuple)):
            details[name] = _short(value)
    return details


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_DETAIL else f"{value[:LONGEST_DETAIL]}..."
    if not isinstance(value, (list, tuple)):
        return value
    kept = [_short(item) for item in value[:MOST_ITEMS]]
    return kept if len(value) <= MOST_ITEMS else [*kept, f"... and {len(value) - MOST_ITEMS} more"]


class LogOutput:
    """The output of one logger. `level` is the effective rank."""

    __slots__ = ("_stream", "level", "name")

    def __init__(self, stream: TextIO, name: str, level: int) -> None:
        self._stream = stream
        self.name = name
        self.level = level

    def write(self, line: str) -> None:
        """Writes one line. Ignores errors: an unwritable log must not stop the broker."""
        try:
            self._stream.write(f"{line}\n")
        except (OSError, ValueError):
            return

    trace = debug = info = warning = error = exception = critical = write


class FilteredLogger(structlog.BoundLoggerBase):
    """structlog's interface over a LogOutput. The level is checked before anything else is done."""

    _logger: LogOutput

    def is_enabled_for(self, level: int) -> bool:
        """Whether lines of this rank are logged: for callers whose details are expensive."""
        return self._logger.level <= level

    def debug(self, event: str, **details: Any) -> None:
        """Logs details that help to find a fault."""
        if self._logger.level <= 10:
            self._proxy_to_logger("debug", event, **details)

    def info(self, event: str, **details: Any) -> None:
        """Logs an expected change."""
        if self._logger.level <= 20:
            self._proxy_to_logger("info", event, **details)

    def warning(self, event: str, **details: Any) -> None:
        """Logs a problem that the broker can handle."""
        if self._logger.level <= 30:
            self._proxy_to_logger("warning", event, **details)

    def error(self, event: str, **details: Any) -> None:
        """Logs a failure."""
        if self._logger.level <= 40:
            self._proxy_to_logger("error", event, **details)

    def exception(self, event: str, **details: Any) -> None:
        """Logs a failure with the exception being handled."""
        if self._logger.level <= 40:
            details.setdefault("exc_info", True)
            self._proxy_to_logger("exception", event, **details)

    def critical(self, event: str, **details: Any) -> None:
        """Logs that the broker cannot continue."""
        if self._logger.level <= 50:
            self._proxy_to_logger("critical", event, **details)

    warn = warning
    fatal = critical


class Loggers:
    """All loggers by name, and their levels. structlog calls it to create a logger."""

    def __init__(self, stream: TextIO, level: str) -> None:
        self._stream = stream
        self._outputs: dict[str, LogOutput] = {}
        self._set_levels: dict[str, int] = {ROOT: LEVELS[level]}
        for name in (ROOT, *FIRST_LOGGERS):
            self(name)

    def __call__(self, name: str = ROOT, *_: object) -> LogOutput:
        output = self._outputs.get(name)
        if output is None:
            output = self._outputs[name] = LogOutput(self._stream, name, self._rank(name))
        return output

    def __contains__(self, name: str) -> bool:
        return name in self._outputs

    def levels(self) -> dict[str, str]:
        """Returns the effective level of every logger by name, sorted."""
        return {name: _NAMES[self._outputs[name].level] for name in sorted(self._outputs)}

    def set_level(self, name: str, level: str) -> None:
        """Sets a logger's own level. Raises KeyError for an unknown name or level."""
        rank = LEVELS[level]
        self._outputs[name]
        self._set_levels[name] = rank
        self._apply()

    def unset_level(self, name: str) -> None:
        """Removes a logger's own level, so that its ancestor's applies. The root keeps its level."""
        self._outputs[name]
        if name != ROOT:
            self._set_levels.pop(name, None)
            self._apply()

    def _apply(self) -> None:
        for output in self._outputs.values():
            output.level = self._rank(output.name)

    def _rank(self, name: str) -> int:
        while name:
            if name in self._set_levels:
                return self._set_levels[name]
            name = name.rpartition(".")[0]
        return self._set_levels[ROOT]


class _Stamp:
    """Adds time, level and logger to an event."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms

    def __call__(self, logger: LogOutput, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        moment = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
        return {
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _METHOD_NAMES.get(method, method),
            "logger": logger.name,
            "event": event.pop("event"),
            **event,
        }


class _StandardLibraryHandler(logging.Handler):
    """Forwards records of the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        exc_info = record.exc_info if record.exc_info and record.exc_info[0] is not None else None
        log = structlog.get_logger(record.name)
        details = {} if exc_info is None else {"exc_info": exc_info}
        (log.error if record.levelno >= logging.ERROR else log.warning)(record.getMessage(), **details)


def _bridge_standard_library() -> None:
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _StandardLibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(_StandardLibraryHandler(logging.WARNING))


def _console_renderer() -> structlog.typing.Processor:
    return structlog.dev.ConsoleRenderer(
        colors=True, exception_formatter=_printable_traceback, sort_keys=False, pad_event_to=0
    )


def for_terminal(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """structlog processor that makes event and details printable; the renderer does so for tracebacks."""
    for name, value in event.items():
        if name == "event":
            event[name] = printable(str(value))
        elif name != "exc_info" and not (value if isinstance(value, str) else repr(value)).isprintable():
            event[name] = _Shown(printable(repr(value)))
    return event


class _Shown:
    """A detail whose text is already escaped."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _printable_traceback(stream: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write(printable_lines(text.getvalue()))

"""Log events have one style: a few words, separated by spaces, without an article or a full stop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "storage", "protocol", "purgatory", "timer", "clients", "testing", "pipeline")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
STYLE = re.compile(r"(?!(?i:a|an|the|this|these|it) )[A-Za-z0-9][^\n]*[^.!?:\s]")
LONGEST = 60


def events(source: str) -> Iterator[tuple[int, str]]:
    """Line and event of each call such as `log.info("broker started", ...)` whose event is a literal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and _logs(node.func):
            event = node.args[0]
            if isinstance(event, ast.Constant) and isinstance(event.value, str):
                yield node.lineno, event.value


def _logs(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr in LEVELS
        and isinstance(function.value, ast.Name)
        and function.value.id in ("log", "_log")
    )


def is_in_style(event: str) -> bool:
    words = re.sub(r"__\w+", "", event)  # internal topics
    return STYLE.fullmatch(event) is not None and "_" not in words and len(event) <= LONGEST


def test_every_log_event_is_in_style() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {event}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for line, event in events(path.read_text())
        if not is_in_style(event)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "event", ["append_failed", "a request was refused", "The broker started", "stopped.", "x" * 80]
)
def test_events_of_other_styles_are_found(event: str) -> None:
    ((line, found),) = events(f"import structlog\nlog = structlog.get_logger()\nlog.warning({event!r}, reason='x')\n")
    assert (line, found) == (3, event)
    assert not is_in_style(event)

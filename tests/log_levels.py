"""Which levels are logged, without the lines: those of a long run would make the garbage collector stop the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any

import structlog


@contextlib.contextmanager
def levels_logged() -> Iterator[set[str]]:
    """Yields the levels of what is logged meanwhile. Nothing of it is printed."""
    levels: set[str] = set()

    def note(_logger: Any, level: str, _event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        levels.add(level)
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    before = list(processors)
    processors[:] = [note]
    structlog.configure(processors=processors)
    try:
        yield levels
    finally:
        processors[:] = before
        structlog.configure(processors=processors)

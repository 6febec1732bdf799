"""Keeps two libraries from importing much that a broker never uses: a sixth of the time it takes to start.

structlog takes rich along where it finds it, for tracebacks that we do not print that way; crc32c takes
importlib.metadata, to know its own version. While they are imported the first is hidden and the second stood in for. To
be imported before anything else of the broker; without effect where the libraries are there already.
"""

from __future__ import annotations

import sys
from types import ModuleType


def _import_lean() -> None:
    hidden: dict[str, ModuleType | None] = {"rich": None, "importlib.metadata": _metadata_without_content()}
    added = [name for name in hidden if name not in sys.modules]
    for name in added:
        sys.modules[name] = hidden[name]  # type: ignore[assignment]
    try:
        import crc32c  # noqa: F401
        import structlog  # noqa: F401
    finally:
        for name in added:
            del sys.modules[name]


def _metadata_without_content() -> ModuleType:
    module = ModuleType("importlib.metadata")
    module.version = lambda _: "unknown"  # type: ignore[attr-defined]
    return module


_import_lean()

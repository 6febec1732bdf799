"""Keeps two libraries from importing modules that a broker never uses, which saves a sixth of the start-up time.

structlog imports rich, if installed, for a traceback format that we do not use. crc32c imports importlib.metadata to
find its own version. While the two are imported, rich is hidden and importlib.metadata is replaced by a stub. Import
this module before anything else of the broker. Modules that are already imported are not affected.
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

"""Keeps three libraries from importing modules that a broker never uses, which saves a sixth of the start-up time.

structlog imports rich, if installed, for a traceback format that we do not use, and pickle for the name of an error.
crc32c imports importlib.metadata to find its own version, and uuid imports platform for the name of the system. While
they are imported, rich is hidden, and stubs replace the other three. Import this module before anything else of the
broker. Modules that are already imported are not affected.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


def _import_lean() -> None:
    hidden: dict[str, ModuleType | None] = {
        "rich": None,
        "importlib.metadata": _metadata_without_content(),
        "pickle": _pickle_with_its_error_only(),
        "platform": _platform_with_its_name_only(),
    }
    added = [name for name in hidden if name not in sys.modules]
    for name in added:
        sys.modules[name] = hidden[name]  # type: ignore[assignment]
    try:
        import uuid  # noqa: F401

        import crc32c  # noqa: F401
        import structlog  # noqa: F401
    finally:
        for name in added:
            del sys.modules[name]


def _metadata_without_content() -> ModuleType:
    module = ModuleType("importlib.metadata")
    module.version = lambda _: "unknown"  # type: ignore[attr-defined]
    return module


def _pickle_with_its_error_only() -> ModuleType:
    module = ModuleType("pickle")
    module.PicklingError = type("PicklingError", (Exception,), {})  # type: ignore[attr-defined]
    return module


def _platform_with_its_name_only() -> ModuleType:
    module = ModuleType("platform")
    module.system = lambda: os.uname().sysname  # type: ignore[attr-defined]
    return module


_import_lean()

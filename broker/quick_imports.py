"""Keeps three libraries from importing modules that a broker never uses, which saves a fifth of the start-up time.

structlog imports rich, if installed, for a traceback format that we do not use, pickle for the name of an error, and
all of its own modules. crc32c imports its command and, to find its own version, importlib.metadata; uuid imports
platform for the name of the system. While they are imported, rich is hidden, and stubs replace the others. Afterwards
the modules of structlog are there again, and are loaded when an attribute of theirs is first used. A library that asks
a stub for something else is imported without the stubs. Import this module before anything else of the broker. Modules
that are already imported are not affected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import Any


def _when_called(module: str, name: str) -> type:
    """Returns a class in place of the module's class: an object of it makes the real object when it is called."""

    class Stand:
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self._arguments, self._named = arguments, named

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            real: Any = getattr(import_module(module), name)
            return real(*self._arguments, **self._named)(*arguments, **named)

    return Stand


def _set_exc_info(*arguments: Any) -> Any:
    return import_module("structlog.dev").set_exc_info(*arguments)


STUBS: Mapping[str, Mapping[str, Any]] = {
    "crc32c._cli": {"main": None},
    "importlib.metadata": {"version": lambda _: "unknown"},
    "pickle": {"PicklingError": type("PicklingError", (Exception,), {})},
    "platform": {"system": lambda: os.uname().sysname},
    "structlog.dev": {
        "ConsoleRenderer": _when_called("structlog.dev", "ConsoleRenderer"),
        "_has_colors": True,
        "set_exc_info": _set_exc_info,
    },
    "structlog.stdlib": {},
    "structlog.threadlocal": {},
    "structlog.tracebacks": {
        "ExceptionDictTransformer": _when_called("structlog.tracebacks", "ExceptionDictTransformer")
    },
}
"""By module, what the libraries use of it while they are imported."""
HIDDEN = {"rich": None}


def _import_with_stubs() -> None:
    stubs: dict[str, ModuleType | None] = {name: ModuleType(name) for name in STUBS}
    for name, attributes in STUBS.items():
        vars(stubs[name]).update(attributes)
    try:
        with _instead(stubs | HIDDEN) as added:
            _import()
    except (AttributeError, ImportError):  # a release that uses more of a module than its stub has
        _import()
    else:
        for name in added:
            if name.startswith("structlog."):
                _load_when_used(name)


def _import() -> None:
    import uuid  # noqa: F401

    import crc32c  # noqa: F401
    import structlog  # noqa: F401


@contextmanager
def _instead(stubs: Mapping[str, ModuleType | None]) -> Iterator[list[str]]:
    """Lets imports find `stubs` instead of the modules that are not imported yet; yields the names of these."""
    added = [name for name in stubs if name not in sys.modules]
    for name in added:
        sys.modules[name] = stubs[name]  # type: ignore[assignment]
    try:
        yield added
    finally:
        for name in added:
            del sys.modules[name]


def _load_when_used(name: str) -> None:
    """Puts a module in its place; it is loaded when an attribute of it is first used."""
    package, _, short = name.rpartition(".")
    spec = find_spec(name)
    if spec is not None and spec.origin is not None:
        loader = spec.loader = LazyLoader(_WithoutHidden(name, spec.origin))
        module = sys.modules[name] = module_from_spec(spec)
        loader.exec_module(module)
        setattr(sys.modules[package], short, module)


class _WithoutHidden(SourceFileLoader):
    """Loads a module that does not find HIDDEN."""

    def exec_module(self, module: ModuleType) -> None:
        """See SourceFileLoader."""
        with _instead(HIDDEN):
            super().exec_module(module)


_import_with_stubs()

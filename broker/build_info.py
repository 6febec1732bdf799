"""Reports which modules run compiled, and why the others do not: `python -m odradek.broker.build_info` prints one line.

setup.py compiles a table of modules and writes a note about the result. Whether a module counts as compiled depends on
what the import system finds.
"""

import argparse
import json
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.util import find_spec
from pathlib import Path

NOTE = Path(__file__).with_name("build_note.json")


class BuildInfo:
    """`compiled` and `interpreted` are module names; `reason` says why some are interpreted, or is empty."""

    __slots__ = ("compiled", "interpreted", "reason")

    def __init__(self, compiled: list[str], interpreted: list[str], reason: str) -> None:
        self.compiled = compiled
        self.interpreted = interpreted
        self.reason = reason

    @property
    def is_compiled(self) -> bool:
        return bool(self.compiled) and not self.interpreted

    def __str__(self) -> str:
        if self.is_compiled:
            return f"compiled: {', '.join(self.compiled)}"
        why = self.reason or "no build has taken place here"
        if not self.compiled:
            return f"nothing is compiled, all is plain Python, correct and slower: {why}"
        return f"compiled: {', '.join(self.compiled)}; plain Python: {', '.join(self.interpreted)}: {why}"


def build_info(note: Path = NOTE) -> BuildInfo:
    """Checks each module that the build's note names: the loaded module, or the one that would be loaded."""
    try:
        content = json.loads(note.read_text())
    except FileNotFoundError:
        return BuildInfo([], [], "")
    compiled: list[str] = []
    interpreted: list[str] = []
    for name in content["modules"]:
        (compiled if _is_extension(name) else interpreted).append(name)
    return BuildInfo(compiled, interpreted, content["reason"])


def _is_extension(name: str) -> bool:
    """Checks the loaded module, or else the file that would be loaded, without importing anything."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        origin = getattr(loaded, "__file__", None)
    else:
        package, _, _ = name.rpartition(".")
        parent = find_spec(package)
        spec = PathFinder.find_spec(name, parent.submodule_search_locations) if parent is not None else None
        origin = None if spec is None else spec.origin
    return (origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m odradek.broker.build_info", description=__doc__.partition("\n")[0])
    parser.add_argument("--require-compiled", action="store_true", help="exit with status 1 unless all are compiled")
    arguments = parser.parse_args()
    info = build_info()
    print(info)
    return 1 if arguments.require_compiled and not info.is_compiled else 0


if __name__ == "__main__":
    sys.exit(main())

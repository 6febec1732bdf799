"""Runs the tests with the lowest and the highest supported Python that can be had, except the running one.

    python -m tests.pythons [argument for pytest ...]             for example --rows=3 (tests/rows.py)
    python -m tests.pythons --others [argument for pytest ...]    with the versions between the two

Each has a copy of the sources and an environment of its own in build/pythons, and runs `make test` there. Supported are
the versions of pyproject.toml's classifiers. The machine has a version if a program of its name is on the path, or if
pyenv has it; tests/sid.py gives what the machine lacks. The output names a version that cannot be had, and the next one
is taken. With ODRADEK_NO_SKIP=1 a run that finds nothing to test fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests import sid

ROOT = Path(__file__).resolve().parent.parent
COPIES = ROOT / "build" / "pythons"
NOT_SOURCES = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".*_cache",
    ".benchmarks",
    "__pycache__",
    "*.so",
    "build_note.json",
    "*.egg-info",
    "build",
    "dist",
    "data",
    "pipeline-demo",
)
Version = sid.Version
Place = str | Path
"""The machine's program, or the archive of a root directory that has the version."""
Find = Callable[[Version], Place | None]


def supported() -> list[Version]:
    """The versions that pyproject.toml names, the lowest first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (3)\.(\d+)", line) for line in classifiers)
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def program(version: Version) -> str | None:
    """Where an interpreter of the version is."""
    name = "python{}.{}".format(*version)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    beside = [str(path.parent) for path in sorted(pyenv.glob(f"versions/*/bin/{name}"))]
    places = [*os.environ.get("PATH", "").split(os.pathsep), *beside]
    candidates = (shutil.which(name, path=place) for place in places)
    return next((path for path in candidates if path and _is(path, version)), None)


def _is(path: str, version: Version) -> bool:
    """Whether it is an interpreter of the version that can create environments; pyenv has stubs that cannot."""
    command = [path, "-c", f"import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != {version})"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def on_machine(version: Version) -> Place | None:
    """The program of the version; prints it."""
    path = program(version)
    print("Python {}.{}: {}".format(*version, path or "not on this machine"), flush=True)
    return path


def anywhere(version: Version) -> Place | None:
    """The program of the version, or Debian sid with it; prints which, or why neither."""
    if (path := on_machine(version)) is not None:
        return path
    try:
        kept = sid.archive(version)
    except sid.NoSid as why:
        print("Python {}.{}: not from Debian sid: {}".format(*version, why), flush=True)
        return None
    print("Python {}.{}: from Debian sid".format(*version), flush=True)
    return kept


def ends(versions: Sequence[Version], on_machine: Find, anywhere: Find) -> dict[Version, Place]:
    """The lowest version that the machine has, and the highest that can be had."""
    return _first(versions, on_machine) | _first(reversed(versions), anywhere)


def _first(versions: Iterable[Version], find: Find) -> dict[Version, Place]:
    for version in versions:
        if (where := find(version)) is not None:
            return {version: where}
    return {}


def between(versions: Sequence[Version], find: Find) -> dict[Version, Place]:
    """The versions but the lowest and the highest, as far as they can be had."""
    return {version: where for version in versions[1:-1] if (where := find(version)) is not None}


def test(version: Version, where: Place, arguments: list[str]) -> bool:
    directory = COPIES / "{}.{}".format(*version)
    shutil.rmtree(directory, ignore_errors=True)
    command = ["make", "--no-print-directory", "test", f"TESTS={' '.join(arguments)}"]
    if isinstance(where, str):
        shutil.copytree(ROOT, directory, ignore=NOT_SOURCES, symlinks=True)
        return subprocess.run([*command, "-C", str(directory), f"PYTHON={where}"], check=False).returncode == 0
    root = sid.Root(where, directory)
    shutil.copytree(ROOT, directory / "odradek", ignore=NOT_SOURCES, symlinks=True)
    return root.run(*command, "-C", "/odradek", "PYTHON=python{}.{}".format(*version)) == 0


def main(arguments: list[str]) -> int:
    own = (sys.version_info.major, sys.version_info.minor)
    versions = supported()
    others = arguments[:1] == ["--others"]
    had = between(versions, anywhere) if others else ends(versions, on_machine, anywhere)
    had.pop(own, None)
    if not had and own != versions[-1]:
        print("no other Python can be had, so none is tested", file=sys.stderr)
        return int(os.environ.get("ODRADEK_NO_SKIP") == "1")
    failed = [version for version, where in had.items() if not test(version, where, arguments[others:])]
    for version in failed:
        print("the tests fail by Python {}.{}".format(*version), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs the tests with the lowest and the highest supported Python of this machine, except the running one.

    python -m tests.pythons [argument for pytest ...]

Each has a copy of the sources and an environment of its own in build/pythons, and runs `make test` there. Supported are
the versions of pyproject.toml's classifiers. The machine has a version if a program of its name is on the path, or if
pyenv has it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

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
Version = tuple[int, int]


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


def to_test(here: dict[Version, str], own: Version) -> list[Version]:
    """The lowest and the highest installed version, except the one already tested."""
    return sorted({min(here), max(here)} - {own}) if here else []


def test(version: Version, python: str, arguments: list[str]) -> bool:
    copy = COPIES / "{}.{}".format(*version)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCES, symlinks=True)
    command = ["make", "--no-print-directory", "-C", str(copy), "test", f"PYTHON={python}"]
    return subprocess.run([*command, f"TESTS={' '.join(arguments)}"], check=False).returncode == 0


def main(arguments: list[str]) -> int:
    own = (sys.version_info.major, sys.version_info.minor)
    found = {version: program(version) for version in supported()}
    here = {version: path for version, path in found.items() if path is not None}
    for version in supported():
        print("Python {}.{}: {}".format(*version, found[version] or "not on this machine"), flush=True)
    failed = [version for version in to_test(here, own) if not test(version, here[version], arguments)]
    for version in failed:
        print("the tests fail by Python {}.{}".format(*version), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

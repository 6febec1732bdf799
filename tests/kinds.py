"""What a test needs beyond an installed Odradek, and which of these kinds a run takes.

    pytest                                      tests that need nothing more: `make test`
    pytest --kinds=programs,second_loop,long    only what `make test` leaves out
    pytest --kinds=all                          everything

A test runs if all its kinds are chosen; a test without a kind is `quick`. No list is kept by hand: a folder, a fixture
of tests/programs.py, an event loop or a marker beside the test decides its kind. A folder whose kind is not chosen is
not imported. A path on the command line chooses the kind of its folder.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from tests import programs

TESTS = Path(__file__).resolve().parent
KINDS = {
    "quick": "needs nothing more",
    "programs": "needs another program: kcat, Chromium, Java, Go, Kafka itself",
    "spark": "needs the packages of the extra [spark]",
    "second_loop": "runs again on asyncio in debug mode",
    "long": "a long loop: a few rounds, and all of them in `make soak`",
    "releases": "needs older brokers of Kafka from Maven Central, and Java: `make test-releases`",
}
SLOW = {"programs", "long", "soak", "releases"}
"""Files whose tests of these marks may take longest come first, so that no worker starts a long file at the end."""
FOLDERS = {"pipeline": "spark"}
"""The kind of all tests in a folder of tests/."""

CHOSEN = pytest.StashKey[frozenset[str]]()


class Absent(MetaPathFinder):
    """Hides packages, so that no test comes to depend on one that `make test` does not install."""

    def __init__(self, packages: frozenset[str]) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(
                f"{fullname} is hidden: this run leaves out the tests of kind spark", name=fullname
            )
        return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kinds", help=f"all, or some of {','.join(KINDS)}; quick by default", default="")


def pytest_configure(config: pytest.Config) -> None:
    for kind, meaning in KINDS.items():
        config.addinivalue_line("markers", f"{kind}: {meaning}")
    chosen = config.stash[CHOSEN] = _choice(config)
    if "spark" not in chosen:
        sys.meta_path.insert(0, Absent(packages_of("spark")))


def _choice(config: pytest.Config) -> frozenset[str]:
    """The kinds of --kinds, else quick and the kinds of the folders on the command line."""
    option = config.getoption("--kinds")
    if option == "all":
        return frozenset(KINDS)
    if not option:
        named = (
            folder_kind((config.invocation_params.dir / path.partition("::")[0]).resolve()) for path in config.args
        )
        return frozenset({"quick", *filter(None, named)})
    chosen = frozenset(option.split(","))
    if unknown := chosen - KINDS.keys():
        raise pytest.UsageError(f"--kinds: {', '.join(sorted(unknown))} is not among {', '.join(KINDS)}")
    return chosen


def is_chosen(config: pytest.Config, kind: str) -> bool:
    return kind in config.stash[CHOSEN]


def packages_of(extra: str) -> frozenset[str]:
    """The packages that an extra of pyproject.toml lists, under their import names."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    required = project["optional-dependencies"][extra]
    names = {"".join(c if c.isalnum() or c in "_-" else " " for c in line).split()[0] for line in required}
    return frozenset(names - {project["name"]})


def folder_kind(path: Path) -> str | None:
    """The kind of a file or folder below a folder of tests/."""
    return FOLDERS.get(path.relative_to(TESTS).parts[0]) if TESTS in path.parents else None


def pytest_report_header(config: pytest.Config) -> str:
    chosen = config.stash[CHOSEN]
    left_out = [kind for kind in KINDS if kind not in chosen]
    return f"kinds: {', '.join(kind for kind in KINDS if kind in chosen)}; left out: {', '.join(left_out) or 'none'}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    kind = folder_kind(collection_path)
    return True if kind is not None and not is_chosen(config, kind) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    if (kind := folder_kind(item.path)) is not None:
        item.add_marker(kind)
    if programs.FIXTURES.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("programs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.stash[CHOSEN]
    left_out = [item for item in items if not kinds_of(item) <= chosen]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if kinds_of(item) <= chosen]
    longest_s: Counter[Path] = Counter()
    for item in items:
        if any(mark.name in SLOW for mark in item.iter_markers()):
            longest_s[item.path] += timeout_s(item)
    items.sort(key=lambda item: -longest_s[item.path])


def timeout_s(item: pytest.Item) -> int:
    """Its time limit, 0 for none."""
    own = item.get_closest_marker("timeout")
    return int(own.args[0] if own else item.config.getini("timeout") or 0)


def kinds_of(item: pytest.Item) -> frozenset[str]:
    return frozenset(mark.name for mark in item.iter_markers() if mark.name in KINDS) or frozenset({"quick"})

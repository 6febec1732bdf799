"""The `__init__.py` of each room opens with a tour that names every file of the room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "storage", "protocol", "purgatory", "timer", "cli", "clients", "testing")
NAME = re.compile(r"\b\w+\.py\b")


def rooms() -> Iterator[str]:
    """The folders of the packages that have modules, relative to the project's."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("__init__.py")):
            yield str(file.parent.relative_to(ROOT))


def left_out(room: Path) -> set[str]:
    """The files of a room that its tour does not name."""
    tour = set(NAME.findall((room / "__init__.py").read_text()))
    return {file.name for file in room.glob("*.py") if not file.name.startswith("__")} - tour


@pytest.mark.parametrize("room", list(rooms()))
def test_a_tour_names_every_file_of_its_room(room: str) -> None:
    assert not left_out(ROOT / room)


def test_a_file_that_a_tour_leaves_out_is_found(tmp_path: Path) -> None:
    for name in ("__init__.py", "__main__.py", "here.py", "there.py"):
        (tmp_path / name).write_text('"""See here.py and there/other.py."""')
    assert left_out(tmp_path) == {"there.py"}


def test_the_architecture_links_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert not [room for room in rooms() if f"(../{room}/__init__.py)" not in page]

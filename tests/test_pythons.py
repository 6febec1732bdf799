"""Which Pythons are named, and which are tested."""

import tomllib
from pathlib import Path

from tests import pythons

LOWEST, HIGHEST = (3, 11), (3, 14)
ALL = [(3, 11), (3, 12), (3, 13), (3, 14)]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/decisions/what-a-test-needs.md")


def test_the_supported_versions_include_the_running_one() -> None:
    assert pythons.supported() == ALL
    assert any(pythons.program(version) for version in ALL)


def test_every_place_that_names_versions_names_the_supported_ones() -> None:
    project = tomllib.loads((pythons.ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["mypy"]["python_version"] == "3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
    for page in PAGES:
        assert "Python 3.11 to 3.14" in (pythons.ROOT / page).read_text(), page


def test_the_lowest_and_the_highest_are_tested_and_in_soak_those_between() -> None:
    here: dict[pythons.Version, pythons.Place] = dict.fromkeys(ALL[:3], "python")
    anywhere = here | {ALL[3]: Path("archive")}
    ends = pythons.ends(ALL, here.get, anywhere.get)
    assert ends == {ALL[0]: "python", ALL[3]: Path("archive")}
    assert pythons.between(ALL, anywhere.get) == {ALL[1]: "python", ALL[2]: "python"}


def test_a_version_that_cannot_be_had_gives_its_turn_to_the_next() -> None:
    here: dict[pythons.Version, pythons.Place] = {ALL[1]: "python", ALL[2]: "python"}
    assert pythons.ends(ALL, here.get, here.get) == here
    del here[ALL[1]]
    assert pythons.between(ALL, here.get) == {ALL[2]: "python"}
    here.clear()
    assert pythons.ends(ALL, here.get, here.get) == {}

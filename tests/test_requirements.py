"""The upper ends of what pip may install: each has its reason beside it, and a package has one range."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def test_each_upper_end_has_its_reason_beside_it() -> None:
    capped = [line for line in PROJECT.read_text().splitlines() if re.search(r'"[\w\[\]-]+[^"]*<[^"]*"', line)]
    assert capped
    assert [line for line in capped if not re.search(r"[\],] # \w.*\.$", line)] == []


def test_a_package_has_the_same_range_wherever_it_is_named() -> None:
    project = tomllib.loads(PROJECT.read_text())
    lists = [project["build-system"]["requires"], project["project"]["dependencies"]]
    lists += project["project"]["optional-dependencies"].values()
    ranges: defaultdict[str, set[str]] = defaultdict(set)
    for one in (Requirement(line) for lines in lists for line in lines):
        ranges[one.name].add(str(one.specifier))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}

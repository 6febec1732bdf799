"""No module of the project imports itself through others, not within a function nor under TYPE_CHECKING."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent


def imports_of(package: str) -> dict[str, set[str]]:
    """The modules of its own package that each module imports."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """For each circle or group of circles, the modules that reach each other."""
    reached = {module: _reached_from(module, imports) for module in imports}
    knots = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }
    return sorted(sorted(knot) for knot in knots)


def _reached_from(module: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [module]
    while ahead:
        new = imports[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circles(imports_of("odradek"))
    assert not found, "; ".join(" and ".join(_file(module) for module in circle) for circle in found)


def _file(module: str) -> str:
    path = Path(*module.split("."))
    return str(path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py"))


def test_a_planted_circle_is_found_with_all_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "__init__": "",
        "first": "from planted.circle.second import Second",
        "second": "def late():\n    from planted.circle import third",
        "third": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import planted.circle.first",
        "below": "import os",
        "above": "from planted.circle.first import First\nfrom planted.circle.below import os",
        "mine": "from planted.circle.yours import Yours",
        "yours": "from planted.circle import mine",
    }
    package = tmp_path / "planted" / "circle"
    package.mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").touch()
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert [[name.rpartition(".")[2] for name in circle] for circle in circles(imports_of("planted"))] == [
        ["first", "second", "third"],
        ["mine", "yours"],
    ]

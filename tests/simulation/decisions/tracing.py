"""Loads the modules whose decisions are counted, with a call beside each decision."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.simulation.decisions.found import REPORT, Decision, Found
from tests.simulation.decisions.modules import name_of


class Outcomes(NamedTuple):
    """Whether a decision was taken with no, and whether it was taken with yes."""

    no: bool
    yes: bool


class Tracing(MetaPathFinder):
    """Finds the traced modules before anything else does. `decisions`: those of the modules that are loaded by now."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self._modules = modules
        self.decisions: list[Decision] = []
        self._taken = bytearray()  # two bytes for each decision: no and yes
        self.report = self._reporter()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._modules.get(fullname)
        return None if file is None else spec_from_loader(fullname, _Loader(fullname, str(file), self))

    def forget(self) -> None:
        """Forgets what was taken."""
        self._taken[:] = bytes(len(self._taken))

    def taken(self) -> dict[Decision, Outcomes]:
        """Returns what was taken since the last call of `forget`."""
        outcomes = iter(map(bool, self._taken))
        return dict(zip(self.decisions, map(Outcomes, outcomes, outcomes), strict=True))

    def code_of(self, file: str, source: bytes) -> Any:
        """Returns the code of a module with a call beside each decision."""
        found = Found(name_of(Path(file)), len(self.decisions))
        tree = found.visit(ast.parse(source, file))
        self.decisions += found.decisions
        self._taken.extend(bytes(2 * len(found.decisions)))
        return compile(tree, file, "exec", dont_inherit=True)

    def _reporter(self) -> Callable[[int, Any], Any]:
        taken = self._taken

        def report(number: int, outcome: Any) -> Any:
            taken[2 * number + 1 if outcome else 2 * number] = 1
            return outcome

        return report


class _Loader(SourceFileLoader):
    """Compiles a module from its source each time: the cache of compiled code has no calls in it."""

    def __init__(self, fullname: str, path: str, tracing: Tracing) -> None:
        super().__init__(fullname, path)
        self._tracing = tracing

    def get_code(self, fullname: str) -> Any:
        return self._tracing.code_of(self.path, self.get_data(self.path))

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[REPORT] = self._tracing.report
        super().exec_module(module)


def trace(modules: dict[str, Path]) -> Tracing:
    """Begins to trace modules, by their names. None of them may have been imported."""
    early = sorted(modules.keys() & sys.modules.keys())
    if early:
        raise RuntimeError(f"tracing comes too late for {', '.join(early)}")
    tracing = Tracing(modules)
    sys.meta_path.insert(0, tracing)
    return tracing

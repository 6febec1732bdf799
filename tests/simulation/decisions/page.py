"""The page of decisions: docs/simulation-decisions.md. The command writes it, and a test reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.decisions.found import Decision
from tests.simulation.decisions.modules import (
    LEFT_OUT,
    ROOT,
    listed_decisions,
)
from tests.simulation.decisions.unreachable import OPEN, REASONS, reason_of

PAGE = ROOT / "docs/simulation-decisions.md"
NOT_COUNTED = "?"
_FILE = re.compile(r"### (\S+)")
_RUNS = re.compile(r"Counted in (.*)\.")
_ROW = re.compile(r" *(\d+|\?) +(\d+|\?) +(\d+|\?)  (.{10})  (\S+): (.+)")
_HEAD = "  no  yes both  why         function: condition"

_INTRODUCTION = """\
# The decisions that the simulation takes

Every branch of the controller, the coordinators, leaders and followers, logs, recovery and compaction, and in how many
seeds it was taken. `python -m tests.simulation.decisions --write` counts and writes this page: it loads the modules
with a call beside each condition (`tests/simulation/decisions/`). Such a call changes nothing of what happens, so a
seed's hash is the same with and without. `--refresh` keeps the counts, and adds the decisions of new code
with a `?`; a test holds that the page has every decision of the code.

Counted in {runs}.

* `no`, `yes`: in how many seeds the condition was false, and was true. `both`: in how many it was both in one seed.
* A condition that consists of others (`and`, `or`, `not`) is not listed: its parts are. An `except` says yes when it
  has caught something, and no when its block has begun. A `case` says no when a later one, or none, was chosen.
* `why`: why a decision is taken in one way only, or never. The table says what the words mean, and
  `tests/simulation/decisions/unreachable.py` has the list.
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """In how many seeds a decision was taken."""

    no: int
    yes: int
    both: int

    @property
    def is_one_sided(self) -> bool:
        return self.no == 0 or self.yes == 0


@dataclass(frozen=True, slots=True)
class Page:
    """What the page says. `runs`: which seeds were counted. None: a decision that was not counted."""

    runs: str
    counts: Mapping[Decision, Counts | None]


def read(path: Path = PAGE) -> Page:
    """Reads the page."""
    text = path.read_text()
    runs = _RUNS.search(text)
    return Page("" if runs is None else runs[1], dict(_rows(text.splitlines())))


def _rows(lines: Iterable[str]) -> Iterator[tuple[Decision, Counts | None]]:
    file = ""
    for line in lines:
        if match := _FILE.fullmatch(line):
            file = match[1]
        elif file and (match := _ROW.fullmatch(line)):
            no, yes, both, _, function, condition = match.groups()
            counts = None if NOT_COUNTED in (no, yes, both) else Counts(int(no), int(yes), int(both))
            yield Decision(file, "" if function == "module" else function, condition), counts


def text_of(page: Page) -> str:
    """Returns the page with every decision of the code."""
    lines = [_INTRODUCTION.format(runs=page.runs), *_tables(page)]
    for part, of_part in listed_decisions().items():
        lines += [f"## {part}", ""]
        for file, decisions in of_part.items():
            if decisions:
                lines += [f"### {file}", "", "```", _HEAD]
                lines += [_row(decision, page.counts.get(decision)) for decision in decisions]
                lines += ["```", ""]
    return "\n".join(lines)


def _row(decision: Decision, counts: Counts | None) -> str:
    numbers = (NOT_COUNTED,) * 3 if counts is None else (counts.no, counts.yes, counts.both)
    why = reason_of(decision) if counts is not None and counts.is_one_sided else ""
    columns = " ".join(f"{number:>4}" for number in numbers)
    return f"{columns}  {why:10}  {decision.function or 'module'}: {decision.text}"


def _tables(page: Page) -> Iterator[str]:
    yield from ("| part | decisions | both ways | one way only | never | of these open |", "|---|---|---|---|---|---|")
    for part, of_part in listed_decisions().items():
        decisions = [decision for decisions in of_part.values() for decision in decisions]
        counted = [(decision, counts) for decision in decisions if (counts := page.counts.get(decision)) is not None]
        both = sum(not counts.is_one_sided for _, counts in counted)
        never = sum(counts.no == counts.yes == 0 for _, counts in counted)
        still_open = sum(counts.is_one_sided and reason_of(decision) == OPEN for decision, counts in counted)
        columns = (part, len(decisions), both, len(counted) - both - never, never, still_open)
        yield f"| {' | '.join(map(str, columns))} |"
    yield from ("", "| why | what it means |", "|---|---|")
    yield from (f"| {name} | {reason.meaning} |" for name, reason in REASONS.items())
    yield from ("", "| left out | what it is |", "|---|---|")
    yield from (f"| {', '.join(f'`{name}`' for name in names)} | {because} |" for because, names in LEFT_OUT.items())
    yield ""

"""The simulation finds planted bugs by what clients and operators see. A seed finds a bug on one state of the sources;
a few more are tried when they have changed. If the first one that fails shows something else, planted_found.py finds
new seeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.planted import BUGS, HARDSHIPS
from tests.simulation.planted_found import FOUND_BY, MOST_SEEDS, ROOT, SHOWN_IN, TABLE, run, seed_of, shows, with_seeds
from tests.simulation.planted_in_access import ACCESS_BUGS
from tests.simulation.planted_in_consumer_groups import CONSUMER_GROUP_BUGS
from tests.simulation.planted_in_controllers import CONTROLLER_BUGS
from tests.simulation.planted_in_groups import GROUP_BUGS
from tests.simulation.planted_in_logins import LOGIN_BUGS
from tests.simulation.planted_in_logs import LOG_BUGS
from tests.simulation.planted_in_newer_transactions import NEWER_TRANSACTION_BUGS
from tests.simulation.planted_in_replicas import REPLICA_BUGS
from tests.simulation.planted_in_transactions import TRANSACTION_BUGS
from tests.simulation.planted_seeds import FOUND_FROM

OF_ONE_PART = {
    *NEWER_TRANSACTION_BUGS,
    *CONSUMER_GROUP_BUGS,
    *ACCESS_BUGS,
    *CONTROLLER_BUGS,
    *REPLICA_BUGS,
    *LOGIN_BUGS,
    *TRANSACTION_BUGS,
    *GROUP_BUGS,
    *LOG_BUGS,
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FOUND_FROM)
def test_a_planted_bug_is_found(name: str) -> None:
    """By its own invariant, in the first seed that fails."""
    first = FOUND_FROM[name]
    ended = run(name, first, first + MOST_SEEDS - 1)
    assert ended.returncode == 1, ended.stderr[-2000:]
    assert "raised at" not in ended.stdout, "the invariants should find it, not a crash"
    assert shows(name, ended.stdout), ended.stdout[-2000:]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("hardship", "bug"), SHOWN_IN.items())
def test_a_hardship_alone_breaks_nothing(hardship: str, bug: str) -> None:
    ended = run(hardship, FOUND_FROM[bug], FOUND_FROM[bug])
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]


@pytest.mark.parametrize(
    ("recorded", "shown", "expected"),
    [(3, [1, 3], 3), (3, [2, 4], 2), (None, [2], 2), (MOST_SEEDS + 1, [MOST_SEEDS + 1], MOST_SEEDS + 1), (3, [], None)],
)
def test_a_bug_that_the_recorded_seed_does_not_show_has_another_seed(
    recorded: int | None, shown: list[int], expected: int | None
) -> None:
    assert seed_of("a bug", recorded, lambda name, seed: seed in shown) == expected


def test_seeds_are_written_to_the_table() -> None:
    text = TABLE.read_text()
    assert with_seeds(text, FOUND_FROM) == text
    assert '    "append duplicates": 99,\n' in with_seeds(text, {**FOUND_FROM, "append duplicates": 99})


@pytest.mark.parametrize(
    ("bug", "output", "expected"),
    [
        ("offsets do not expire", "seed 2: FAILED\n    expired: offset 2 has not expired\n", True),
        ("offsets do not expire", "seed 2: FAILED\n    expired: offset 2 has expired too early\n", False),
        ("append duplicates", "seed 2: FAILED\n    once: twice\n", True),
        ("append duplicates", "seed 2: FAILED\n    raised at 1.0: KeyError()\n    once: twice\n", False),
        ("append duplicates", "seed 2: passed\n", False),
    ],
)
def test_a_seed_shows_a_bug_by_what_the_checker_says_of_it(bug: str, output: str, expected: bool) -> None:
    assert shows(bug, output) is expected


def test_no_two_bugs_of_one_part_are_found_by_the_same_line() -> None:
    sources = [path for path in ROOT.glob("tests/simulation/**/*.py") if not path.name.startswith(("test_", "planted"))]
    lines = [(path, *line) for path in sources for line in enumerate(path.read_text().splitlines())]
    assert FOUND_BY.keys() == OF_ONE_PART
    finders: dict[tuple[Path, int], str] = {}
    for bug, texts in FOUND_BY.items():
        found = [(path, number) for path, number, line in lines if any(text in line for text in texts.split("|"))]
        assert found, f"nothing says: {texts}"
        for place in found:
            assert finders.setdefault(place, bug) == bug, place


def test_every_bug_has_a_recorded_seed() -> None:
    assert FOUND_FROM.keys() == BUGS.keys()
    assert SHOWN_IN.keys() == HARDSHIPS.keys()

"""`--rows` leaves out rows, but no test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import spread

ROOT = Path(__file__).parent.parent
FOLDER = "tests/timer"
DEADLINES = "tests/testing/virtual_time/test_deadlines.py"
"""The rows of clusters are `long`."""
SOME_LONG = "tests/storage/test_log_moves.py::test_a_power_failure_at_any_step_leaves_the_log_in_exactly_one_directory"
LONG = "--kinds=quick,long"


@pytest.mark.parametrize(
    ("most", "kept"),
    [(1, "a"), (2, "ag"), (3, "adg"), (4, "aceg"), (7, "abcdefg"), (9, "abcdefg")],
)
def test_the_rows_are_spread_from_the_first_to_the_last(most: int, kept: str) -> None:
    assert "".join(spread("abcdefg", most)) == kept


def run(*arguments: str, folder: str = FOLDER) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments, folder]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def rows_of_tests(*arguments: str, folder: str = FOLDER) -> dict[str, list[str]]:
    """The collected rows of each test."""
    done = run(*arguments, folder=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if "::" in line:
            found.setdefault(line.partition("[")[0], []).append(line)
    return found


@pytest.mark.long
def test_every_test_stays_with_some_of_its_rows() -> None:
    everything = rows_of_tests()
    assert max(map(len, everything.values())) > 3
    assert rows_of_tests("--rows=3") == {name: spread(rows, 3) for name, rows in everything.items()}


def test_no_rows_at_all_are_a_usage_error() -> None:
    done = run("--rows=0")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--rows=0: a test has at least one row" in done.stderr


@pytest.mark.long
def test_what_no_other_run_repeats_keeps_its_rows() -> None:
    everything = rows_of_tests("--kinds=second_loop,long", folder=DEADLINES)
    some = rows_of_tests("--kinds=second_loop,long", "--rows=1", folder=DEADLINES)
    clusters = f"{DEADLINES}::test_what_a_setting_decides_happens_in_a_cluster_when_it_is_due"
    one = f"{DEADLINES}::test_what_a_setting_decides_happens_when_it_is_due"
    assert some[clusters] == everything[clusters]
    assert 1 == len(some[one]) < len(everything[one])


@pytest.mark.long
def test_rows_that_no_other_run_repeats_stay_beside_one_that_is_repeated() -> None:
    """Two of the four rows are `long`."""
    (everything,) = rows_of_tests(LONG, folder=SOME_LONG).values()
    (some,) = rows_of_tests(LONG, "--rows=1", folder=SOME_LONG).values()
    assert len(everything) == 4
    assert some == [everything[0], *everything[2:]]

from __future__ import annotations

import pytest

from tests.sequences import assert_same, first_difference


def test_equal_sequences_do_not_differ() -> None:
    assert first_difference([0, 1], range(2)) == ""
    assert_same([], ())


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ([0, 2, 1], "2 instead of 1 at 1 of 3; 3 are wanted"),
        ([0, 1], "2 instead of 3"),
        ([0, 1, 2, 3], "4 instead of 3"),
    ],
)
def test_the_first_difference_is_named(found: list[int], difference: str) -> None:
    with pytest.raises(AssertionError, match=f"numbers: {difference}"):
        assert_same(found, range(3), "numbers")

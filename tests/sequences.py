"""Compares long sequences. pytest explains the difference of two lists of ten thousand for many minutes."""

from __future__ import annotations

from collections.abc import Sequence


def assert_same(found: Sequence[object], wanted: Sequence[object], what: str = "") -> None:
    """Fails with the first difference."""
    difference = first_difference(found, wanted)
    assert not difference, f"{what}: {difference}" if what else difference


def first_difference(found: Sequence[object], wanted: Sequence[object]) -> str:
    """Returns where two sequences differ, "" if they do not."""
    for place, (left, right) in enumerate(zip(found, wanted, strict=False)):
        if left != right:
            return f"{left!r} instead of {right!r} at {place} of {len(found)}; {len(wanted)} are wanted"
    return f"{len(found)} instead of {len(wanted)}" if len(found) != len(wanted) else ""

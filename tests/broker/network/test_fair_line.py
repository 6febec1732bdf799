"""Addresses take turns, however many wait from one of them."""

import pytest

from odradek.broker.network.fair_line import FairLine


def test_one_from_another_address_is_next_but_one() -> None:
    line: FairLine[str] = FairLine()
    for number in range(1000):
        line.add("10.0.0.1", f"flood {number}")
    line.add("10.0.0.2", "newcomer")
    assert [line.take() for _ in range(3)] == ["flood 0", "newcomer", "flood 1"]
    assert len(line) == 998


def test_each_address_keeps_its_order() -> None:
    line: FairLine[str] = FairLine()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        line.add(item[0], item)
    taken = [line.take() for _ in range(len(line))]
    assert taken == ["a1", "b1", "c1", "a2", "b2", "a3"]
    with pytest.raises(StopIteration):
        line.take()

"""The line of connections that wait for a turn of the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

import pytest

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.rounds import ALL_MS, LINE_MS, PAUSE_MS, Rounds
from odradek.timer import ManualClock


class Line:
    """Rounds with an event loop that runs a turn when a test calls `turn`."""

    def __init__(self) -> None:
        self.clock = ManualClock(now_ms=1000)
        self.rounds = Rounds(self.clock, lambda *_: None, lambda: None, cast(ConnectionLimits, ()))
        self.rounds.call_soon = lambda callback, *arguments: self._due.append(lambda: callback(*arguments))
        self.had_turns: list[str] = []
        self._due: deque[Callable[[], object]] = deque()

    def wait(self, host: str, ms: int) -> None:
        self.rounds.wait(host, lambda: self._has_its_turn(host, ms))

    def _has_its_turn(self, host: str, ms: int) -> None:
        self.had_turns.append(host)
        self.clock.advance(ms)

    def turn(self) -> None:
        for _ in range(len(self._due)):
            self._due.popleft()()

    def round(self, ms: int) -> bool:
        """Returns whether a round came too late in its turn. If not, it takes so long."""
        late = self.rounds.is_late(self.rounds.enter())
        if not late:
            self.clock.advance(ms)
        self.rounds.leave()
        return late


def test_a_line_takes_a_part_of_each_turn() -> None:
    line = Line()
    for _ in range(3):
        line.wait("a", LINE_MS // 2)
    line.turn()
    assert len(line.had_turns) == 2
    line.turn()
    assert len(line.had_turns) == 3


def test_addresses_take_turns() -> None:
    line = Line()
    for _ in range(3):
        line.wait("many", LINE_MS)
    line.wait("one", LINE_MS)
    for _ in range(4):
        line.turn()
    assert line.had_turns == ["many", "one", "many", "many"]


def test_a_callback_that_fails_stops_nobody() -> None:
    line = Line()
    line.rounds.wait("a", lambda: 1 // 0)
    line.wait("b", 1)
    with pytest.raises(ZeroDivisionError):
        line.turn()
    line.turn()
    assert line.had_turns == ["b"]


def test_rounds_are_late_until_the_next_turn() -> None:
    line = Line()
    lates = [line.round(ALL_MS // 5) for _ in range(7)]
    assert lates == [False] * 5 + [True] * 2
    line.turn()
    assert not line.round(1)


def test_the_time_of_the_line_counts() -> None:
    line = Line()
    line.wait("a", ALL_MS)
    line.turn()
    line.rounds.leave()
    assert line.round(1)


def test_a_pause_begins_anew() -> None:
    line = Line()
    line.round(ALL_MS)
    line.clock.advance(PAUSE_MS + 1)
    assert not line.round(1)


def test_short_turns_one_after_the_other_are_not_late() -> None:
    line = Line()
    for _ in range(100):
        assert not line.round(LINE_MS // 2)
        line.turn()

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.handshakes import LONGEST_MS, TURN_MS, Handshakes, HandshakingTransport, Server
from odradek.timer import ManualClock
from tests.table_settings import of_table


class Loop:
    """Calls back when the test says so."""

    def __init__(self) -> None:
        self.limits = of_table(ConnectionLimits, max_handshakes_per_ip=2)
        self.due: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


HOST = "10.0.0.1"


class Slow:
    """A transport whose steps take 4 ms."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.steps = 0

    def shake_hands(self) -> None:
        self.clock.advance(4)
        self.steps += 1


def new_handshakes() -> tuple[Loop, ManualClock, Handshakes]:
    loop, clock = Loop(), ManualClock()
    return loop, clock, Handshakes(cast(Server, loop), clock)


def slow(clock: ManualClock) -> HandshakingTransport:
    return cast(HandshakingTransport, Slow(clock))


def test_a_turn_of_the_loop_has_a_limited_time_for_handshakes() -> None:
    loop, clock, handshakes = new_handshakes()
    waiting = [Slow(clock) for _ in range(10)]
    for one in waiting:
        handshakes.step_soon(cast(HandshakingTransport, one), HOST)
    assert len(loop.due) == 1
    for done in range(1, 11):
        began_ms = clock.now_ms()
        loop.turn()
        assert clock.now_ms() - began_ms < TURN_MS + 4
        assert sum(one.steps for one in waiting) == done
        assert [one.steps for one in waiting] == [1] * done + [0] * (10 - done)
    assert not loop.due


def test_a_step_that_fails_does_not_stop_the_others() -> None:
    loop, clock, handshakes = new_handshakes()

    class Failing(Slow):
        def shake_hands(self) -> None:
            raise OSError("not connected")

    fine = Slow(clock)
    for one in (Failing(clock), fine):
        handshakes.step_soon(cast(HandshakingTransport, one), HOST)
    with pytest.raises(OSError, match="not connected"):
        loop.turn()
    loop.turn()
    assert fine.steps == 1
    handshakes.step_soon(cast(HandshakingTransport, fine), HOST)
    loop.turn()
    assert fine.steps == 2


def test_a_step_that_comes_later_gets_a_turn_again() -> None:
    loop, clock, handshakes = new_handshakes()
    one = Slow(clock)
    for steps in (1, 2):
        handshakes.step_soon(cast(HandshakingTransport, one), HOST)
        loop.turn()
        assert one.steps == steps


def test_a_step_for_another_address_does_not_wait_for_all_of_one() -> None:
    loop, clock, handshakes = new_handshakes()
    for _ in range(100):
        handshakes.step_soon(slow(clock), HOST)
    one = Slow(clock)
    handshakes.step_soon(cast(HandshakingTransport, one), "10.0.0.2")
    for _ in range(2):  # one step takes a turn
        loop.turn()
    assert one.steps == 1


def test_an_address_may_have_so_many_handshakes_under_way() -> None:
    _, clock, handshakes = new_handshakes()
    first, second, third, elsewhere = (slow(clock) for _ in range(4))
    assert handshakes.begin(first, "10.0.0.1")
    assert handshakes.begin(second, "10.0.0.1")
    assert not handshakes.begin(third, "10.0.0.1")
    assert handshakes.begin(elsewhere, "10.0.0.2")
    handshakes.end(first)
    handshakes.end(first)
    assert handshakes.begin(third, "10.0.0.1")
    assert len(handshakes) == 3


def test_those_that_take_too_long_are_overdue() -> None:
    _, clock, handshakes = new_handshakes()
    old, done, young = (slow(clock) for _ in range(3))
    handshakes.begin(old, "a")
    handshakes.begin(done, "b")
    handshakes.end(done)
    clock.advance(LONGEST_MS - 1)
    handshakes.begin(young, "c")
    assert handshakes.overdue() == []
    clock.advance(1)
    assert handshakes.overdue() == [old]

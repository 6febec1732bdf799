import pytest

from odradek.timer import Clock, ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_it_is_set() -> None:
    clock = ManualClock(5, 1_000)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 1_000)
    clock.advance(3_600_000)
    assert (clock.now_ms(), clock.wall_ms()) == (3_600_005, 3_601_000)


def test_monotonic_time_never_goes_back_but_the_wall_clock_can() -> None:
    clock = ManualClock(5, 1_000)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
    clock.set_wall_ms(10)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 10)


def test_the_system_clock_returns_whole_milliseconds_since_1970() -> None:
    clock: Clock = SystemClock()
    assert clock.wall_ms() > 1_600_000_000_000
    first, second = clock.now_ms(), clock.now_ms()
    assert first <= second
    assert isinstance(first, int)

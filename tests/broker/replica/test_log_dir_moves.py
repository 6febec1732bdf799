"""How long a move between log directories pauses after a piece, so that all moves together keep to their rate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replica.log_dir_moves import UNLIMITED, LogDirMoves
from tests.simulation.loop import simulated_loop


def seconds_of_pause(size: int, *rates: int, moves: int = 1) -> float:
    """The pause after a piece of this size. `rates`: as they are at each look; the last one stays."""
    left = list(rates)
    logs: Any = SimpleNamespace(moves=None, directories=("/data",))
    nothing: Any = None
    moving = LogDirMoves(logs, nothing, nothing, bytes_per_second=lambda: left.pop(0) if len(left) > 1 else left[0])
    moving._running = moves
    move: Any = SimpleNamespace(abandoned=False)
    loop = simulated_loop()
    try:
        loop.run_until_complete(moving._pause(move, size))
        return loop.time()
    finally:
        loop.close()


@pytest.mark.parametrize(("size", "rate"), [(1005, 2_000_001), (1024, 2_000_001), (1 << 20, 999_983), (1, 3)])
def test_a_pause_takes_what_the_rate_requires(size: int, rate: int) -> None:
    assert seconds_of_pause(size, rate) == pytest.approx(size / rate, abs=2e-6)
    assert seconds_of_pause(size, rate, moves=3) == pytest.approx(3 * size / rate, abs=6e-6)


def test_a_changed_rate_takes_effect_within_a_second() -> None:
    assert seconds_of_pause(10_000, 1_000, 9_000) == pytest.approx(2.0)
    assert seconds_of_pause(10_000, 0, 5_000) == pytest.approx(3.0)
    assert seconds_of_pause(10_000, 1_000, UNLIMITED) == pytest.approx(1.0)

"""What a wait that gives up says."""

from __future__ import annotations

import asyncio

import pytest

from tests import patience
from tests.patience import block_until, until, within


async def test_a_wait_that_gives_up_says_for_what_and_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.05)
    arrived = ["one"]
    with pytest.raises(TimeoutError, match=r"not within 0.05 s: .*len\(arrived\) > 1.*last value was False"):
        await until(lambda: len(arrived) > 1 and arrived)
    with pytest.raises(TimeoutError, match=r"arrived\[1:\].*last value was \[\]"):
        block_until(lambda: arrived[1:])


async def test_a_timer_of_the_loop_comes_within_as_many_pauses_as_it_takes() -> None:
    fired = asyncio.Event()
    asyncio.get_running_loop().call_later(3 * patience.PAUSE_S, fired.set)
    assert await within(fired.is_set, 10)
    assert not await within(asyncio.Event().is_set, 1)

"""The worked examples of the timing wheel and of its reaper."""

import asyncio

from tests.timer.recording_tasks import WheelHarness


def test_the_example_in_the_docstring_of_the_timing_wheel_is_right(harness: WheelHarness) -> None:
    for delay_ms in (350, 446, 450, 473):
        harness.add(str(delay_ms), delay_ms)
    hands = {}
    for moment in (340, 350, 400, 440, 446, 450, 460, 473):
        assert harness.timer.next_expiration_ms == moment
        harness.move_to(moment)
        hands[moment] = [wheel.current_time_ms for wheel in harness.levels()]
    assert harness.ran_at == {"350": 350, "446": 446, "450": 450, "473": 473}
    assert (hands[340], hands[350], hands[400]) == ([340, 340, 0], [350, 340, 0], [400, 400, 400])
    assert (hands[440], hands[460]) == ([440, 440, 400], [460, 460, 400])


def test_tasks_at_200_and_840_ms_wake_the_reaper_three_times_not_840() -> None:
    """On an event loop in virtual time: see test_reaper."""
    from odradek.timer import ExpirationReaper, SystemTimer
    from tests.timer.virtual_time import VirtualTimeLoop

    loop = VirtualTimeLoop()

    async def scenario() -> list[int]:
        harness = WheelHarness()
        timer = SystemTimer(loop.clock)
        reaper = ExpirationReaper(timer)
        timer.add(harness.task("200", 200))
        timer.add(harness.task("840", 840))
        reaper.start()
        wakeups = []
        seen = 0
        while timer.size:
            await asyncio.sleep(0.001)
            if reaper.wakeups > seen:
                seen = reaper.wakeups
                wakeups.append(loop.clock.now_ms())
        reaper.stop()
        assert harness.ran == ["200", "840"]
        assert reaper.wakeups == 3
        return wakeups

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(scenario()) == [200, 800, 840]

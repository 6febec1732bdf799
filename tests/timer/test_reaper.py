"""The reaper sleeps until the next bucket expires, and never spins."""

from collections.abc import Iterator

import pytest

from odradek.timer import ExpirationReaper, ManualClock, SystemTimer, TimerTask
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import SimulatedLoop, simulated_loop
from tests.timer.recording_tasks import WheelHarness


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = simulated_loop()
    yield loop
    assert loop.failures == []
    loop.close()


class Waking(TimerTask):
    """A task that records when it ran."""

    def __init__(self, loop: SimulatedLoop, delay_ms: int, ran: list[int]) -> None:
        super().__init__(delay_ms)
        self.clock = SimulatedClock(loop)
        self.ran = ran

    def run(self) -> None:
        self.ran.append(self.clock.now_ms())


def started(loop: SimulatedLoop) -> tuple[SystemTimer, ExpirationReaper]:
    timer = SystemTimer(SimulatedClock(loop))
    reaper = ExpirationReaper(timer)
    reaper.start(loop)
    return timer, reaper


def test_the_loop_wakes_at_200_800_and_840_ms_for_tasks_at_200_and_840(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    ran: list[int] = []
    timer.add(Waking(loop, 200, ran))
    timer.add(Waking(loop, 840, ran))
    calls = []
    for _ in range(2000):
        loop.run_for(0.001)
        calls.append(loop.calls)
    assert ran == [200, 840]
    assert reaper.wakeups == 3
    assert [calls.index(number) + 1 for number in (1, 2, 3)] == [200, 800, 840]
    assert calls[-1] == 3


def test_an_empty_timer_never_wakes_the_loop(loop: SimulatedLoop) -> None:
    _, reaper = started(loop)
    loop.run_for(3600)
    assert reaper.wakeups == 0
    assert loop.calls == 0


def test_an_earlier_task_moves_the_alarm_forward(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    ran: list[int] = []
    timer.add(Waking(loop, 300, ran))
    timer.add(Waking(loop, 15, ran))
    loop.run_for(1)
    assert ran == [15, 300]
    assert reaper.wakeups == 2


def test_a_later_task_does_not_move_the_alarm(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    ran: list[int] = []
    timer.add(Waking(loop, 10, ran))
    for delay_ms in range(11, 20):
        timer.add(Waking(loop, delay_ms, ran))
    loop.run_for(0.0105)
    assert (ran, reaper.wakeups) == ([10], 1)
    loop.run_for(1)
    assert ran == list(range(10, 20))


def test_a_task_added_by_a_task_runs(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    ran: list[int] = []

    class Again(Waking):
        def run(self) -> None:
            super().run()
            if len(ran) < 3:
                timer.add(self)

    timer.add(Again(loop, 7, ran))
    loop.run_for(1)
    assert ran == [7, 14, 21]
    assert reaper.wakeups == 3


def test_twelve_thousand_timeouts_of_ten_seconds_each_expire_on_time(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    due: list[int] = []
    ran: list[int] = []
    for number in range(12_000):
        due.append(number % 10_000 + 1)
        timer.add(Waking(loop, due[-1], ran))
    loop.run_for(11)
    assert ran == sorted(due)
    assert reaper.wakeups <= 10_000
    assert timer.size == 0


def test_one_long_wait_costs_one_wake_up_per_wheel(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    ran: list[int] = []
    timer.add(Waking(loop, 29_999, ran))
    loop.run_for(60)
    assert ran == [29_999]
    assert reaper.wakeups == 4


def test_a_stopped_reaper_runs_no_tasks(loop: SimulatedLoop) -> None:
    timer, reaper = started(loop)
    ran: list[int] = []
    timer.add(Waking(loop, 10, ran))
    reaper.stop()
    reaper.stop()
    timer.add(Waking(loop, 5, ran))
    loop.run_for(1)
    assert (ran, timer.size, reaper.wakeups) == ([], 2, 0)
    reaper.start(loop)
    loop.run_for(1)
    assert len(ran) == 2


def test_starting_twice_is_an_error(loop: SimulatedLoop) -> None:
    _, reaper = started(loop)
    with pytest.raises(RuntimeError, match="already running"):
        reaper.start(loop)


def test_a_failing_task_does_not_stop_the_reaper(loop: SimulatedLoop, capsys: pytest.CaptureFixture[str]) -> None:
    timer, _ = started(loop)
    ran: list[int] = []

    class Failing(Waking):
        def run(self) -> None:
            raise ValueError("no")

    timer.add(Failing(loop, 10, ran))
    timer.add(Waking(loop, 10, ran))
    timer.add(Waking(loop, 30, ran))
    loop.run_for(1)
    assert ran == [10, 30]
    assert "timer task failed" in "".join(capsys.readouterr())


def test_a_call_that_comes_too_early_is_rescheduled_by_a_whole_millisecond() -> None:
    clock = ManualClock()
    asked: list[float] = []

    class EarlyLoop:
        def call_later(self, delay: float, callback: object) -> "EarlyLoop":
            asked.append(delay)
            self.callback = callback
            return self

        def cancel(self) -> None:
            raise AssertionError("nothing is moved forward here")

    early = EarlyLoop()
    timer = SystemTimer(clock)
    reaper = ExpirationReaper(timer)
    harness = WheelHarness()
    timer.add(harness.task("task", 10))
    reaper.start(early)  # type: ignore[arg-type]
    clock.advance(9)
    early.callback()  # type: ignore[operator]
    assert harness.ran == []
    clock.advance(1)
    early.callback()  # type: ignore[operator]
    assert harness.ran == ["task"]
    assert asked == [0.01, 0.001]

"""The timer's guarantees beyond the vectors."""

import gc
import random
import weakref
from collections.abc import Callable

import pytest

from odradek.timer import ManualClock, SystemTimer, TaskCounter, TimerTask, TimerTaskList, TimingWheel
from odradek.timer.bucket_queue import BucketQueue
from tests.timer.recording_tasks import WheelHarness


def test_tasks_of_one_bucket_run_in_the_order_in_which_they_were_added(harness: WheelHarness) -> None:
    for name in "abc":
        harness.add(name, 5)
    harness.move_to(5)
    assert harness.ran == ["a", "b", "c"]


def test_a_task_can_cancel_another_of_its_bucket(harness: WheelHarness) -> None:
    victim = harness.task("victim", 5)

    class Cancelling(TimerTask):
        def run(self) -> None:
            victim.cancel()

    harness.timer.add(Cancelling(5))
    harness.timer.add(victim)
    harness.add("other", 5)
    harness.move_to(5)
    assert harness.ran == ["other"]
    assert harness.timer.size == 0


def test_a_task_that_adds_itself_again_runs_once_per_round(harness: WheelHarness) -> None:
    class Periodic(TimerTask):
        def run(self) -> None:
            harness.ran.append(str(harness.clock.now_ms()))
            harness.timer.add(self)

    harness.timer.add(Periodic(20))
    assert harness.run_until(100) == [20, 40, 60, 80, 100]
    assert harness.ran == ["20", "40", "60", "80", "100"]


def test_a_task_without_run_is_logged_and_the_next_one_runs(
    harness: WheelHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.timer.add(TimerTask(3))
    harness.add("next", 3)
    harness.move_to(3)
    assert harness.ran == ["next"]
    assert "NotImplementedError" in "".join(capsys.readouterr())


def test_is_scheduled_returns_whether_a_task_waits(harness: WheelHarness) -> None:
    task = harness.task("task", 4)
    states = [task.is_scheduled]
    harness.timer.add(task)
    states.append(task.is_scheduled)
    harness.move_to(4)
    states.append(task.is_scheduled)
    assert states == [False, True, False]


def test_nothing_references_a_cancelled_task(harness: WheelHarness) -> None:
    class Traceable(TimerTask):
        pass

    neighbours = [harness.add("before", 5), Traceable(5), harness.add("after", 5)]
    harness.timer.add(neighbours[1])
    gone = weakref.ref(neighbours[1])
    gc.disable()
    try:
        neighbours.pop(1).cancel()
        assert gone() is None
    finally:
        gc.enable()


def test_on_earlier_is_called_only_if_the_next_expiration_becomes_earlier(harness: WheelHarness) -> None:
    seen: list[int | None] = []
    harness.timer.on_earlier(lambda: seen.append(harness.timer.next_expiration_ms))
    for delay_ms in (300, 350, 15, 15, 16, 3):
        harness.add(str(delay_ms), delay_ms)
    assert seen == [300, 15, 3]


def test_a_timer_after_shutdown_is_empty_and_accepts_no_task(harness: WheelHarness) -> None:
    tasks = [harness.add(str(delay_ms), delay_ms) for delay_ms in (5, 50, 500, 50_000)]
    harness.timer.shutdown()
    assert (harness.timer.size, harness.timer.next_expiration_ms) == (0, None)
    assert not any(task.is_scheduled for task in tasks)
    with pytest.raises(RuntimeError, match="shut down"):
        harness.timer.add(tasks[0])
    harness.clock.advance(100_000)
    assert not harness.timer.advance_clock()
    assert harness.ran == []


@pytest.mark.parametrize(("tick_ms", "wheel_size"), [(0, 20), (-1, 20), (1, 1), (1, 0)])
def test_an_invalid_wheel_size_is_refused(tick_ms: int, wheel_size: int) -> None:
    with pytest.raises(ValueError, match="at least 2 buckets"):
        SystemTimer(ManualClock(), tick_ms, wheel_size)


@pytest.mark.parametrize(("tick_ms", "wheel_size"), [(1, 20), (5, 4), (10, 3), (1, 512), (200, 10)])
def test_every_task_runs_on_time_or_less_than_a_tick_early(
    new_harness: Callable[..., WheelHarness], tick_ms: int, wheel_size: int
) -> None:
    """Compares with the simplest timer: a table of due times."""
    chance = random.Random(tick_ms * 1000 + wheel_size)
    harness = new_harness(tick_ms, wheel_size, chance.randrange(10_000_000))
    due: dict[str, int] = {}
    for number in range(2_000):
        delay_ms = int(chance.expovariate(1 / 3_000)) + tick_ms
        task = harness.add(str(number), delay_ms)
        if chance.random() < 0.3:
            task.cancel()
        else:
            due[str(number)] = harness.clock.now_ms() + delay_ms
        if chance.random() < 0.2:
            harness.run_until(harness.clock.now_ms() + chance.randrange(50))
    harness.run_until(10_000_000 + 1_000_000)
    assert harness.ran_at.keys() == due.keys()
    assert all(0 <= due[name] - harness.ran_at[name] < tick_ms for name in due)
    assert harness.timer.size == 0


def test_a_counter_shared_by_lists_counts_added_and_unlinked_tasks() -> None:
    counter = TaskCounter()
    lists = [TimerTaskList(counter), TimerTaskList(counter)]
    tasks = [TimerTask(0) for _ in range(10)]
    for number, task in enumerate(tasks):
        lists[number % 2].add(task)
    assert counter.tasks == 10
    for task in tasks[:5]:
        task.cancel()
        task.cancel()
    assert counter.tasks == 5
    assert [list(bucket.tasks()) for bucket in lists] == [[tasks[6], tasks[8]], [tasks[5], tasks[7], tasks[9]]]
    assert lists[0].pop_first() is tasks[6]
    assert [list(bucket.tasks()) for bucket in lists] == [[tasks[8]], [tasks[5], tasks[7], tasks[9]]]
    assert counter.tasks == 4


def test_setting_the_same_expiration_again_returns_false() -> None:
    bucket = TimerTaskList(TaskCounter())
    assert bucket.set_expiration(40)
    assert not bucket.set_expiration(40)
    assert bucket.set_expiration(60)


def overflow_wheel_of(wheel: TimingWheel) -> TimingWheel:
    assert wheel.overflow_wheel is not None
    return wheel.overflow_wheel


def test_overflow_wheels_are_created_on_demand_with_the_span_of_those_below() -> None:
    wheel = TimingWheel(1, 20, 0, TaskCounter(), BucketQueue())
    assert wheel.overflow_wheel is None
    entry = TimerTask(0)
    entry.expiration_ms = 400
    assert wheel.add(entry)
    second = overflow_wheel_of(wheel)
    assert second.overflow_wheel is not None
    assert (second.tick_ms, second.interval_ms, second.overflow_wheel.tick_ms) == (20, 400, 400)
    assert second.overflow_wheel.overflow_wheel is None


def test_the_tasks_of_a_bucket_are_counted_up_to_a_bound(harness: WheelHarness) -> None:
    bucket = harness.timer.wheel.buckets[5]
    assert bucket.count(10) == 0
    for name in "abc":
        harness.add(name, 5)
    assert (bucket.count(10), bucket.count(3), bucket.count(2), bucket.count(0)) == (3, 3, 2, 0)
    harness.move_to(5)
    assert bucket.count(10) == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda wheel, task: setattr(task, "expiration_ms", task.expiration_ms + 40),
        lambda wheel, task: setattr(task.next, "previous", task.next),
        lambda wheel, task: setattr(task, "counter", TaskCounter()),
        lambda wheel, task: setattr(wheel.counter, "tasks", 3),
        lambda wheel, task: setattr(wheel.buckets[5], "expiration_ms", -1),
        lambda wheel, task: setattr(wheel.buckets[5], "expiration_ms", 25),
        lambda wheel, task: wheel.buckets.insert(0, wheel.buckets.pop()),
        lambda wheel, task: setattr(wheel, "current_time_ms", 6),
        lambda wheel, task: setattr(wheel.next_wheel(), "current_time_ms", 20),
        lambda wheel, task: wheel.queue.clear(),
        lambda wheel, task: wheel.queue.offer(wheel.buckets[7]),
    ],
    ids=["time", "links", "task's counter", "count", "unqueued", "round", "place", "hand", "hands", "queue", "unused"],
)
def test_a_broken_invariant_is_found(harness: WheelHarness, damage: Callable[[TimingWheel, TimerTask], object]) -> None:
    task = harness.add("first", 5)
    harness.add("second", 350)
    harness.timer.check()
    damage(harness.timer.wheel, task)
    with pytest.raises(AssertionError):
        harness.timer.check()

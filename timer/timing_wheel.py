"""TimingWheel: add and cancel in O(1), however many tasks wait and however far ahead.

**One wheel** is a ring of `n` buckets of `u` milliseconds each. It works like the dial of a clock: at time `t` the hand
stands at `t` rounded down to `u`, and a task that expires at `e` is in bucket `(e // u) mod n`, wherever on the dial
that is. This is correct for everything that expires within the next `n * u` milliseconds, the *interval* of the wheel.
Buckets behind the hand are empty and serve the next round, so nothing is moved as time passes. A task that would fall
under the hand itself has already expired and is refused: the caller runs it.

**Several wheels** hold tasks further ahead, as a clock's minutes and hours extend its seconds. The next wheel has as
many buckets, each as wide as the whole wheel below; it is created when the first task needs it. With u = 1 and n = 20
the wheels reach 20 ms, 400 ms, 8 s, 160 s, 53 min ...; adding a task looks at only these few.

**A bucket expires when its range starts.** In the first wheel its tasks are due at that moment. In the others they lie
somewhere in the range that starts there, so they are added again. The hands have moved, so each task finds a place in a
finer wheel, until it is due to the millisecond. No task is early or late (with u > 1: early by less than u).

A worked example, u = 1, n = 20, started at 0; "20: 17" is bucket 17 of the wheel with ticks of 20:

    add 350      beyond 20, within 400                        20: 17   expires at 340
    add 446      beyond 400                                   400: 1   expires at 400
    add 450      the same bucket                              400: 1
    add 473      the same bucket                              400: 1
    at 340       20: 17 expires, the hands show 340 340 0;
                 350 is ten ahead and moves down              1: 10    expires at 350
    at 350       350 runs; the hands show 350 340 0
    at 400       400: 1 expires, the hands show 400 400 400;
                 446 and 450, at 440-460, move down           20: 2    expires at 440
                 473, at 460-480, moves down                  20: 3    expires at 460
    at 440       20: 2 expires, the hands show 440 440 400    1: 6     expires at 446
                                                              1: 10    expires at 450
    at 446, 450  446 and 450 run
    at 460       20: 3 expires, the hands show 460 460 400    1: 13    expires at 473
    at 473       473 runs

Eight wake-ups in 473 ms: the hands jump from one expiring bucket to the next and stand still between them. That is also
why a wheel has no clock. Time is an argument of `advance_clock`, which is called only when a bucket expires. After an
idle period the hands are behind the time: a short delay may then land in a coarser wheel, in a bucket that has already
expired, and move down within one advance.

The first bucket of a coarser wheel, the one under its hand, never gets a task, since the wheel below covers its range.
This wastes one bucket of n but needs no special case. Kafka: TimingWheel.
"""

from mypy_extensions import i64

from odradek.timer.bucket_queue import BucketQueue
from odradek.timer.task import TaskCounter, TimerTaskEntry
from odradek.timer.task_list import TimerTaskList


class TimingWheel:
    """One level of the hierarchy: `wheel_size` buckets of `tick_ms`. The next level is created on demand.

    `start_ms` is rounded down to the tick. The counter and the queue are shared by all levels of a timer.
    """

    __slots__ = (
        "buckets",
        "counter",
        "current_time_ms",
        "interval_ms",
        "overflow_wheel",
        "queue",
        "tick_ms",
        "wheel_size",
    )

    def __init__(self, tick_ms: int, wheel_size: int, start_ms: int, counter: TaskCounter, queue: BucketQueue) -> None:
        if tick_ms < 1 or wheel_size < 2:
            raise ValueError(
                f"a wheel needs a tick of at least 1 ms and at least 2 buckets, not {tick_ms} and {wheel_size}"
            )
        self.tick_ms: i64 = tick_ms
        self.wheel_size: i64 = wheel_size
        self.interval_ms: i64 = tick_ms * wheel_size
        self.current_time_ms: i64 = start_ms - start_ms % tick_ms
        self.counter = counter
        self.queue = queue
        self.buckets: list[TimerTaskList] = [TimerTaskList(counter) for _ in range(wheel_size)]
        self.overflow_wheel: TimingWheel | None = None

    def add(self, entry: TimerTaskEntry) -> bool:
        """Adds an entry that is in no list to the bucket of its `expiration_ms`. False if it has already expired."""
        expiration_ms: i64 = entry.expiration_ms
        if expiration_ms < self.current_time_ms + self.tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel.current_time_ms + wheel.interval_ms:
            wheel = wheel.next_wheel()
        tick: i64 = expiration_ms // wheel.tick_ms
        bucket = wheel.buckets[tick % wheel.wheel_size]
        bucket.add(entry)
        if bucket.set_expiration(tick * wheel.tick_ms):
            wheel.queue.offer(bucket)
        return True

    def next_wheel(self) -> "TimingWheel":
        """The wheel above, created on demand; its hand starts at this wheel's time."""
        wheel = self.overflow_wheel
        if wheel is None:
            wheel = TimingWheel(self.interval_ms, self.wheel_size, self.current_time_ms, self.counter, self.queue)
            self.overflow_wheel = wheel
        return wheel

    def advance_clock(self, time_ms: i64) -> None:
        """Moves the hands of this wheel and the wheels above to the bucket that expires at `time_ms`, never back."""
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel.current_time_ms + wheel.tick_ms:
            time_ms -= time_ms % wheel.tick_ms
            wheel.current_time_ms = time_ms
            wheel = wheel.overflow_wheel

    def check(self) -> tuple[int, int]:
        """Asserts what holds between two calls: each bucket is in its place on the dial and has only tasks of its
        range, and the hands of all levels show the same time. Returns how many buckets have an expiration, and how many
        tasks are in this wheel and those above.
        """
        hand, tick_ms = self.current_time_ms, self.tick_ms
        assert hand % tick_ms == 0, f"the hand of a wheel with ticks of {tick_ms} stands at {hand}"
        queued, tasks = 0, 0
        for index, bucket in enumerate(self.buckets):
            start_ms: i64 = bucket.expiration_ms
            found = bucket.check()
            if start_ms == -1:
                assert found == 0, f"bucket {index} has tasks and no expiration"
                continue
            queued += 1
            tasks += found
            assert start_ms % tick_ms == 0, f"bucket {index} begins between two ticks"
            assert (start_ms // tick_ms) % self.wheel_size == index, f"bucket {index} is in another's place"
            assert hand <= start_ms < hand + self.interval_ms, f"bucket {index} is not of this round"
            for task in bucket.tasks():
                expiration_ms: i64 = task.expiration_ms
                assert start_ms <= expiration_ms < start_ms + tick_ms, f"{task!r} is in another task's bucket"
        above = self.overflow_wheel
        if above is None:
            return queued, tasks
        assert above.tick_ms == self.interval_ms, "a coarser wheel does not begin where this one ends"
        assert above.current_time_ms == hand - hand % above.tick_ms, "the hands disagree"
        queued_above, tasks_above = above.check()
        return queued + queued_above, tasks + tasks_above

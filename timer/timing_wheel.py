"""TimingWheel: add and cancel in O(1), however many tasks wait and however far ahead.

**One wheel** is a ring of `n` buckets of `u` milliseconds each. It is like the dial of a clock: at time `t` the hand
stands at `t` rounded down to `u`, and a task that expires at `e` hangs in bucket `(e // u) mod n`, whatever it is
round the dial from there. That is right for everything that expires within the next `n * u` milliseconds, the
*interval* of the wheel; what the hand has passed is empty and serves the next round, so nothing is ever moved as time
goes on. What would fall under the hand itself has expired already and is not taken: the caller runs it.

**Several wheels** take what lies further ahead, as hours and minutes take what the seconds cannot. The next wheel has
as many buckets, each as wide as the whole wheel below; it is made when the first task needs it. With u = 1 and n = 20
the wheels reach 20 ms, 400 ms, 8 s, 160 s, 53 min ...; a task looks at no more than these few.

**A bucket expires when its range starts.** In the first wheel its tasks are due at that moment. In the others they lie
somewhere in the range that starts there, so they are put in again and, the hands having moved, find a place in a finer
wheel, until they are due to the millisecond. Nothing is early or late (with u > 1: early by less than u).

A worked example, u = 1, n = 20, started at 0; "20: 17" is bucket 17 of the wheel with ticks of 20:

    add 350      beyond 20, within 400                        20: 17   expires at 340
    add 446      beyond 400                                   400: 1   expires at 400
    add 450      the same bucket                              400: 1
    add 473      the same bucket                              400: 1
    at 340       20: 17 expires, the hands show 340 340 0;
                 350 is ten ahead and comes down              1: 10    expires at 350
    at 350       350 runs; the hands show 350 340 0
    at 400       400: 1 expires, the hands show 400 400 400;
                 446 and 450, at 440-460, come down           20: 2    expires at 440
                 473, at 460-480, comes down                  20: 3    expires at 460
    at 440       20: 2 expires, the hands show 440 440 400    1: 6     expires at 446
                                                              1: 10    expires at 450
    at 446, 450  446 and 450 run
    at 460       20: 3 expires, the hands show 460 460 400    1: 13    expires at 473
    at 473       473 runs

Eight moments at which something happens, in 473 ms: the hands jump from one expiring bucket to the next and stand
still between them. That is also why a wheel knows no clock. Time is an argument of `advance_clock`, which only the
expiration of a bucket calls, and after a silence the hands are behind the time: a short delay then may land in a
coarser wheel, whose bucket has expired already, and travel down within one advance.

The first bucket of a coarser wheel, the one under its hand, never gets a task, since the wheel below covers its
range; one of n is wasted, and no case is special. Kafka: TimingWheel.
"""

from mypy_extensions import i64

from odradek.timer.bucket_queue import BucketQueue
from odradek.timer.task import TaskCounter, TimerTaskEntry
from odradek.timer.task_list import TimerTaskList


class TimingWheel:
    """One level of the hierarchy: `wheel_size` buckets of `tick_ms`, and the next level above it once there is need.

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
                f"a wheel needs a tick of 1 ms or more and 2 buckets or more, not {tick_ms} and {wheel_size}"
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
        """Hang an entry that is in no list into the bucket of its `expiration_ms`. False if it has expired already."""
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
        """The wheel above, made on demand; its hand starts where this one's stands."""
        wheel = self.overflow_wheel
        if wheel is None:
            wheel = TimingWheel(self.interval_ms, self.wheel_size, self.current_time_ms, self.counter, self.queue)
            self.overflow_wheel = wheel
        return wheel

    def advance_clock(self, time_ms: i64) -> None:
        """Move the hands of this wheel and those above to the bucket that expires at `time_ms`; never backwards."""
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel.current_time_ms + wheel.tick_ms:
            time_ms -= time_ms % wheel.tick_ms
            wheel.current_time_ms = time_ms
            wheel = wheel.overflow_wheel

"""SystemTimer: the wheels, their queue of buckets and a clock, behind four verbs: add, advance_clock, size, shutdown.

The timer never waits and starts nothing: its caller (the reaper, or a test with a manual clock) calls `advance_clock`
when the clock has passed `next_expiration_ms`. Tasks run in the caller, one after another. A task's exception is logged
and does not keep the other tasks from running.

Several purgatories may share one timer; each keeps its own counts. Kafka: SystemTimer.
"""

from collections.abc import Callable

import structlog
from mypy_extensions import i64

from odradek.timer.bucket_queue import BucketQueue
from odradek.timer.clock import Clock
from odradek.timer.task import DelayedCall, TaskCounter, TimerTask, unlink
from odradek.timer.timing_wheel import TimingWheel

DEFAULT_TICK_MS = 1
DEFAULT_WHEEL_SIZE = 20


class SystemTimer:
    """A timer over hierarchical timing wheels with `wheel_size` buckets each; the finest has ticks of `tick_ms`."""

    __slots__ = ("_closed", "_counter", "_queue", "_wheel", "clock")

    def __init__(self, clock: Clock, tick_ms: int = DEFAULT_TICK_MS, wheel_size: int = DEFAULT_WHEEL_SIZE) -> None:
        self.clock = clock
        self._counter = TaskCounter()
        self._queue = BucketQueue()
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.now_ms(), self._counter, self._queue)
        self._closed = False

    def add(self, task: TimerTask) -> None:
        """Runs the task `task.delay_ms` from now, or immediately if it is already due. A waiting task is moved.

        Raises RuntimeError after `shutdown`.
        """
        if self._closed:
            raise RuntimeError("the timer is shut down")
        unlink(task)
        task.expiration_ms = task.delay_ms + self.clock.now_ms()
        if not self._wheel.add(task):
            run_task(task)

    def call_later(self, delay_ms: int, function: Callable[[], object]) -> TimerTask:
        """Calls the function `delay_ms` from now, unless the returned task is canceled before."""
        call = DelayedCall(delay_ms, function)
        self.add(call)
        return call

    def advance_clock(self) -> bool:
        """Expires all buckets that are due on the clock. True if there was one."""
        now_ms = self.clock.now_ms()
        advanced = False
        while self.expire_bucket(now_ms):
            advanced = True
        return advanced

    def expire_bucket(self, now_ms: i64) -> bool:
        """Empties the earliest bucket if it has expired at `now_ms`: runs its due tasks, adds the rest to finer wheels.

        Returns False if no bucket has expired.
        """
        bucket = self._queue.poll(now_ms)
        if bucket is None:
            return False
        wheel = self._wheel
        wheel.advance_clock(bucket.expiration_ms)
        bucket.expiration_ms = -1
        task = bucket.pop_first()
        while task is not None:
            if not wheel.add(task):
                run_task(task)
            task = bucket.pop_first()
        return True

    @property
    def size(self) -> int:
        """How many tasks wait."""
        return self._counter.tasks

    @property
    def queued_buckets(self) -> int:
        """How many buckets are in the queue, empty ones included."""
        return len(self._queue)

    @property
    def next_expiration_ms(self) -> int | None:
        """When the earliest bucket expires, on the timer's clock; None if none is queued."""
        return self._queue.next_expiration_ms

    @property
    def wheel(self) -> TimingWheel:
        """The finest wheel, for inspection."""
        return self._wheel

    def check(self) -> None:
        """Asserts what holds between two calls: wheels, queue and counter agree."""
        queued, tasks = self._wheel.check()
        self._queue.check(queued)
        assert tasks == self._counter.tasks, f"{tasks} tasks are in the wheels, {self._counter.tasks} are counted"

    def on_earlier(self, callback: Callable[[], None] | None) -> None:
        """Sets the function to call whenever `next_expiration_ms` becomes earlier, or the first bucket is queued."""
        self._queue.on_earlier = callback

    def shutdown(self) -> None:
        """Drops all tasks without running them; `add` raises from now on."""
        self._closed = True
        self._queue.clear()
        self._queue.on_earlier = None
        wheel: TimingWheel | None = self._wheel
        while wheel is not None:
            for bucket in wheel.buckets:
                bucket.expiration_ms = -1
                while bucket.pop_first() is not None:
                    pass
            wheel = wheel.overflow_wheel


def run_task(task: TimerTask) -> None:
    """Runs one task. Its exception is logged, so that the next due tasks still run."""
    try:
        task.run()
    except Exception:
        structlog.get_logger("timer").exception("timer task failed", task=repr(task))

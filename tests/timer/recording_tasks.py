"""Shared by the timer's tests: tasks that record when they run, and access to the wheels."""

from odradek.timer import ManualClock, SystemTimer, TimerTask, TimingWheel


class RecordingTask(TimerTask):
    """Appends its name to `ran`, and the clock's time to `ran_at`."""

    def __init__(self, name: str, delay_ms: int, ran: list[str], ran_at: dict[str, int], clock: ManualClock) -> None:
        super().__init__(delay_ms)
        self.name = name
        self.ran = ran
        self.ran_at = ran_at
        self.clock = clock

    def run(self) -> None:
        self.ran.append(self.name)
        self.ran_at[self.name] = self.clock.now_ms()


class WheelHarness:
    """A timer on a manual clock, started at `start_ms`, and a record of its tasks."""

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        self.clock = ManualClock(start_ms)
        self.timer = SystemTimer(self.clock, tick_ms, wheel_size)
        self.ran: list[str] = []
        self.ran_at: dict[str, int] = {}
        self.buckets: list[int] = []

    def task(self, name: str, delay_ms: int) -> RecordingTask:
        return RecordingTask(name, delay_ms, self.ran, self.ran_at, self.clock)

    def add(self, name: str, delay_ms: int) -> RecordingTask:
        task = self.task(name, delay_ms)
        self.timer.add(task)
        return task

    def move_to(self, now_ms: int) -> None:
        """Sets the clock and advances the timer bucket by bucket, recording each expiration."""
        self.clock.advance(now_ms - self.clock.now_ms())
        while True:
            expiration_ms = self.timer.next_expiration_ms
            if not self.timer.expire_bucket(now_ms):
                return
            assert expiration_ms is not None
            self.buckets.append(expiration_ms)

    def run_until(self, end_ms: int) -> list[int]:
        """Advances from one expiring bucket to the next, as the reaper does; returns these times."""
        moments = []
        while (moment := self.timer.next_expiration_ms) is not None and moment <= end_ms:
            moments.append(moment)
            self.move_to(moment)
        return moments

    def levels(self) -> list[TimingWheel]:
        found = []
        wheel: TimingWheel | None = self.timer.wheel
        while wheel is not None:
            found.append(wheel)
            wheel = wheel.overflow_wheel
        return found

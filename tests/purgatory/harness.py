"""What the purgatory's tests share: a manual clock, a manual loop, and operations that record their events."""

from collections.abc import Callable

from odradek.purgatory import CompletionQueue, DelayedOperation, DelayedOperationPurgatory
from odradek.timer import ManualClock, SystemTimer


class Loop:
    """call_soon, and `turn` for one turn of the loop: what was scheduled before it runs, in order."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.scheduled.append(callback)

    def turn(self) -> int:
        now, self.scheduled = self.scheduled, []
        for callback in now:
            callback()
        return len(now)

    def until_idle(self) -> int:
        """Runs the loop until it is idle; returns the number of turns with callbacks."""
        turns = 0
        while self.turn():
            turns += 1
            assert turns < 100_000, "the loop does not come to rest"
        return turns


class Operation(DelayedOperation):
    """Completes when `ready` is set; counts how often it was tried."""

    def __init__(self, name: str = "operation", delay_ms: int = 30_000) -> None:
        super().__init__(delay_ms)
        self.name = name
        self.ready = False
        self.tried = 0
        self.events: list[str] = []
        self.when_complete: Callable[[], object] | None = None

    def try_complete(self) -> bool:
        self.tried += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")
        if self.when_complete is not None:
            self.when_complete()

    def on_expiration(self) -> None:
        self.events.append("expired")

    def __repr__(self) -> str:
        return f"Operation({self.name})"


class PurgatoryHarness:
    """A purgatory on a manual clock."""

    def __init__(self, purge_interval: int = 1000, budget: int = 1000) -> None:
        self.loop = Loop()
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.completions = CompletionQueue(self.loop.call_soon, budget)
        self.purgatory = DelayedOperationPurgatory("Test", self.timer, self.clock, self.completions, purge_interval)

    def park(self, *keys: str, name: str = "operation", delay_ms: int = 30_000) -> Operation:
        operation = Operation(name, delay_ms)
        assert not self.purgatory.try_complete_else_watch(operation, keys)
        return operation

    def pass_time(self, ms: int) -> None:
        """Advances the clock, stopping where something expires, and runs the loop until it is idle."""
        end_ms = self.clock.now_ms() + ms
        while (moment := self.timer.next_expiration_ms) is not None and moment <= end_ms:
            self.clock.advance(max(moment - self.clock.now_ms(), 0))
            self.timer.advance_clock()
            self.loop.until_idle()
        self.clock.advance(end_ms - self.clock.now_ms())
        self.loop.until_idle()

    def happened(self, *keys: str) -> None:
        """Signals an event for the keys, as a handler that has finished."""
        for key in keys:
            self.completions.add(self.purgatory, key)
        self.loop.until_idle()

"""DelayedHeartbeat: the end of a member's session, unless the member sends a request before.

One operation serves a member for as long as the member is in its group. `extend` only notes the new deadline; when the
timer finds the old deadline passed, the operation goes back into the wheel for the remaining time. So a heartbeat costs
one assignment, and a member is moved in the wheel once per session timeout, not once per heartbeat. (Kafka: a new
DelayedHeartbeat each time.) Only an earlier deadline moves the task at once.

The operation completes when the session needs no more heartbeats (`satisfy`); at its timeout it calls `on_missed`.
"""

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.timer.system_timer import SystemTimer


class DelayedHeartbeat(DelayedOperation):
    """The session ends `timeout_ms` from now. Then `on_missed()` is called once, from an empty call stack."""

    __slots__ = ("deadline_ms", "is_satisfied", "on_missed", "timer")

    def __init__(self, timeout_ms: int, timer: SystemTimer, on_missed: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self.timer = timer
        self.on_missed = on_missed
        self.deadline_ms = timer.clock.now_ms() + timeout_ms
        self.is_satisfied = False

    def extend(self, timeout_ms: int) -> None:
        """Moves the end of the session to `timeout_ms` from now."""
        self.deadline_ms = self.timer.clock.now_ms() + timeout_ms
        if self.deadline_ms < self.expiration_ms:
            self.delay_ms = timeout_ms
            self.timer.add(self)

    def satisfy(self) -> None:
        """Expects no more heartbeats; the next try completes the operation."""
        self.is_satisfied = True

    def run(self) -> None:
        if self.is_over:
            super().run()
        else:
            self.delay_ms = self.left_ms
            self.timer.add(self)

    @property
    def left_ms(self) -> int:
        """Remaining time of the session."""
        return self.deadline_ms - self.timer.clock.now_ms()

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, to the wheel's precision: a task may run up to a tick early."""
        return self.left_ms < self.timer.wheel.tick_ms

    def try_complete(self) -> bool:
        return self.is_satisfied and self.force_complete()

    def on_complete(self) -> None:
        """Sends no response."""

    def on_expiration(self) -> None:
        self.on_missed()

    def __repr__(self) -> str:
        return f"DelayedHeartbeat(deadline_ms={self.deadline_ms})"

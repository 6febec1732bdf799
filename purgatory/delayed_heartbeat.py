"""DelayedHeartbeat: the end of a member's session, unless something is heard of it.

One operation serves a member as long as it is in its group. `extend` only notes the new deadline; when the timer finds
the old one passed, the operation goes back into the wheel for what is left. So a heartbeat costs an assignment, and a
member is moved in the wheel once per session time-out, not once per heartbeat. (Kafka: a new DelayedHeartbeat each
time.) Only a deadline that comes nearer moves the task at once.

It completes when nothing more is expected of the member (`satisfy`); its time-out tells `on_missed`.
"""

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.timer.system_timer import SystemTimer


class DelayedHeartbeat(DelayedOperation):
    """`timeout_ms` from now the session ends. `on_missed()` is called once it has, with nobody on the stack."""

    __slots__ = ("deadline_ms", "is_satisfied", "on_missed", "timer")

    def __init__(self, timeout_ms: int, timer: SystemTimer, on_missed: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self.timer = timer
        self.on_missed = on_missed
        self.deadline_ms = timer.clock.now_ms() + timeout_ms
        self.is_satisfied = False

    def extend(self, timeout_ms: int) -> None:
        """The session ends `timeout_ms` from now instead."""
        self.deadline_ms = self.timer.clock.now_ms() + timeout_ms
        if self.deadline_ms < self.expiration_ms:
            self.delay_ms = timeout_ms
            self.timer.add(self)

    def satisfy(self) -> None:
        """Nothing is expected any more; trying the operation completes it."""
        self.is_satisfied = True

    def run(self) -> None:
        if self.is_over:
            super().run()
        else:
            self.delay_ms = self.left_ms
            self.timer.add(self)

    @property
    def left_ms(self) -> int:
        """How long the session still lasts."""
        return self.deadline_ms - self.timer.clock.now_ms()

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, as exactly as the wheel can tell: a task may run up to a tick early."""
        return self.left_ms < self.timer.wheel.tick_ms

    def try_complete(self) -> bool:
        return self.is_satisfied and self.force_complete()

    def on_complete(self) -> None:
        """Nobody is answered by this."""

    def on_expiration(self) -> None:
        self.on_missed()

    def __repr__(self) -> str:
        return f"DelayedHeartbeat(deadline_ms={self.deadline_ms})"

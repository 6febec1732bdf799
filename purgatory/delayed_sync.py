"""DelayedSync: a generation that began waits until every member has sent its SyncGroup, or until its time-out.

Completing it answers nobody: the leader's assignment does. At its time-out `on_overdue` removes who has not sent one.
Source: Kafka's DelayedSync (KAFKA-10134).
"""

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation


class DelayedSync(DelayedOperation):
    """Ends when `is_over()`: all have sent theirs, or the generation is no more."""

    __slots__ = ("is_over", "on_overdue")

    def __init__(self, timeout_ms: int, is_over: Callable[[], bool], on_overdue: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self.is_over = is_over
        self.on_overdue = on_overdue

    def try_complete(self) -> bool:
        return self.is_over() and self.force_complete()

    def on_complete(self) -> None:
        """Nobody is answered by this."""

    def on_expiration(self) -> None:
        self.on_overdue()

    def __repr__(self) -> str:
        return f"DelayedSync(timeout_ms={self.delay_ms})"

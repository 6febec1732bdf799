"""DelayedSync: a new generation waits until every member has sent its SyncGroup, or until its timeout.

Completing it sends no response: the leader's assignment does that. At its timeout `on_overdue` removes the members
that have not sent a SyncGroup. Source: Kafka's DelayedSync (KAFKA-10134).
"""

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation


class DelayedSync(DelayedOperation):
    """Completes when `is_over()`: all members have sent their SyncGroup, or the generation has ended."""

    __slots__ = ("is_over", "on_overdue")

    def __init__(self, timeout_ms: int, is_over: Callable[[], bool], on_overdue: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self.is_over = is_over
        self.on_overdue = on_overdue

    def try_complete(self) -> bool:
        return self.is_over() and self.force_complete()

    def on_complete(self) -> None:
        """Sends no response."""

    def on_expiration(self) -> None:
        self.on_overdue()

    def __repr__(self) -> str:
        return f"DelayedSync(timeout_ms={self.delay_ms})"

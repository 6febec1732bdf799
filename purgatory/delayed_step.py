"""DelayedStep: a member of a consumer group must take its next step, or it is removed at its rebalance timeout.

The step is to give up partitions, or, for a member that speaks the classic protocol, to join again or to sync. The
operation completes when the member has taken it, or is no longer a member (`satisfy`). Nothing is sent then.
"""

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation


class DelayedStep(DelayedOperation):
    """`on_missed()` is called once at the timeout, from an empty call stack."""

    __slots__ = ("is_satisfied", "on_missed")

    def __init__(self, timeout_ms: int, on_missed: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self.on_missed = on_missed
        self.is_satisfied = False

    def satisfy(self) -> None:
        """The next try completes the operation."""
        self.is_satisfied = True

    def try_complete(self) -> bool:
        return self.is_satisfied and self.force_complete()

    def on_complete(self) -> None:
        """Sends no response."""

    def on_expiration(self) -> None:
        self.on_missed()

    def __repr__(self) -> str:
        return f"DelayedStep(timeout_ms={self.delay_ms})"

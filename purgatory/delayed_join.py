"""DelayedJoin: a rebalancing group that waits until all members have rejoined, or until the rebalance timeout.

`InitialDelayedJoin` is the first rebalance of an empty group. It always waits `group.initial.rebalance.delay.ms` for
more members, and waits as long again whenever a member joined meanwhile, up to the rebalance timeout.

    delay 3000, rebalance timeout 10000, members join at 0, 2000 and 4000
    waits 0-3000 (a member joined: again), 3000-6000 (again), 6000-9000 (no new member: complete)

Source: Kafka's DelayedJoin, InitialDelayedJoin (KIP-134).
"""

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation


class DelayedJoin(DelayedOperation):
    """Calls `complete_join()` once: when `has_all_joined()` is true, or `timeout_ms` from now."""

    __slots__ = ("complete_join", "has_all_joined")

    def __init__(
        self, timeout_ms: int, has_all_joined: Callable[[], bool], complete_join: Callable[[], object]
    ) -> None:
        super().__init__(timeout_ms)
        self.has_all_joined = has_all_joined
        self.complete_join = complete_join

    def try_complete(self) -> bool:
        return self.has_all_joined() and self.force_complete()

    def on_complete(self) -> None:
        self.complete_join()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(timeout_ms={self.delay_ms})"


class InitialDelayedJoin(DelayedJoin):
    """`take_new_member()` returns once whether a member joined meanwhile; `wait_again(operation)` parks the next wait.

    `configured_ms` is the setting, `delay_ms` this wait, `remaining_ms` the rest of the rebalance timeout after it.
    """

    __slots__ = ("configured_ms", "remaining_ms", "take_new_member", "wait_again")

    def __init__(
        self,
        configured_ms: int,
        delay_ms: int,
        remaining_ms: int,
        take_new_member: Callable[[], bool],
        wait_again: Callable[["InitialDelayedJoin"], object],
        complete_join: Callable[[], object],
    ) -> None:
        super().__init__(delay_ms, _never, complete_join)
        self.configured_ms = configured_ms
        self.remaining_ms = remaining_ms
        self.take_new_member = take_new_member
        self.wait_again = wait_again

    def on_complete(self) -> None:
        if self.remaining_ms != 0 and self.take_new_member():
            self.wait_again(self._next())
        else:
            self.complete_join()

    def _next(self) -> "InitialDelayedJoin":
        return InitialDelayedJoin(
            self.configured_ms,
            min(self.configured_ms, self.remaining_ms),
            max(self.remaining_ms - self.configured_ms, 0),
            self.take_new_member,
            self.wait_again,
            self.complete_join,
        )


def _never() -> bool:
    return False

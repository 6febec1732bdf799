"""DelayedOperation: a request that cannot be answered yet. It completes exactly once, by an event or by its time-out.

    parked ----- an event: try_complete() says so ------> force_complete() -> on_complete()
       \\-------- delay_ms have passed: run() -----------> force_complete() -> on_complete(), on_expiration()

Whoever comes second finds `is_completed` and does nothing. In Kafka that takes a compare-and-set and a lock per
operation, since the reaper's thread and any request's thread may come at the same time; here there is one thread, and
a flag is enough (docs/decisions/one-thread-purgatory.md).

An operation is its own timer task: parking allocates nothing but what the subclass brings along. Completing it takes
it out of the timer at once, however far ahead its time-out lies; a broker that kept completed requests until their
`request.timeout.ms` would leak. What stays for a while are its entries in watcher lists, which the purgatory purges.
Kafka: DelayedOperation.
"""

from collections.abc import Hashable, Sequence

from mypy_extensions import i64, mypyc_attr

from odradek.timer.task import TimerTask, unlink


class OperationOwner:
    """What an operation tells the purgatory in which it is parked."""

    __slots__ = ()

    def operation_completed(self, operation: "DelayedOperation") -> None:
        """The operation has just become completed, whoever did it."""
        raise NotImplementedError

    def operation_timed_out(self, operation: "DelayedOperation") -> None:
        """The operation's time-out has passed: complete it, though not under the feet of what is running."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """Subclasses say when they can complete and what happens then.

    `delay_ms` is the time-out; 0 or less means that the operation expires as soon as it is parked. `watch_keys` are
    the keys under which it is parked, `watched_by` in how many lists it still stands. `is_expired` says that it is
    completed because of its time-out, `is_cancelled` that `cancel_for_key` gave it up.
    """

    __slots__ = ("is_abandoned", "is_cancelled", "is_completed", "is_expired", "owner", "watch_keys", "watched_by")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.is_completed: bool = False
        self.is_expired: bool = False
        self.is_cancelled: bool = False
        self.is_abandoned: bool = False
        self.owner: OperationOwner | None = None
        self.watch_keys: Sequence[Hashable] = ()
        self.watched_by: i64 = 0

    def try_complete(self) -> bool:
        """Look whether the operation can complete now; if so `return self.force_complete()`, else return False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answer the request. Called once, however the operation came to its end."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Count that it was the time-out, if that is worth counting. Called after `on_complete`."""

    def force_complete(self) -> bool:
        """Complete the operation unless it is completed. True for the one caller that did it."""
        if self.is_completed:
            return False
        self._end()
        self.on_complete()
        return True

    def abandon(self) -> bool:
        """Give the operation up: nobody is left to answer. It is completed without `on_complete`. False if it was."""
        if self.is_completed:
            return False
        self.is_abandoned = True
        self._end()
        return True

    def _end(self) -> None:
        self.is_completed = True
        unlink(self)
        owner = self.owner
        if owner is not None:
            self.owner = None
            owner.operation_completed(self)

    def run(self) -> None:
        """The timer's call. The owner completes the operation when the running handler has finished."""
        owner = self.owner
        if owner is not None:
            owner.operation_timed_out(self)
        else:
            expire(self)


def expire(operation: DelayedOperation) -> bool:
    """Complete an operation because its time is over. False if something else completed it before."""
    if operation.is_completed:
        return False
    operation.is_expired = True
    operation.force_complete()
    operation.on_expiration()
    return True

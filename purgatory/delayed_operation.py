"""DelayedOperation: a request that cannot be answered yet. It completes exactly once, by an event or by its timeout.

    parked ----- an event: try_complete() is True ------> force_complete() -> on_complete()
       \\-------- delay_ms have passed: run() -----------> force_complete() -> on_complete(), on_expiration()

The second caller finds `is_completed` and does nothing. Kafka needs a compare-and-set and a lock per operation, since
the reaper's thread and request threads may complete it at the same time; here there is one thread, and a flag is enough
(docs/decisions/one-thread-purgatory.md).

An operation is its own timer task: parking allocates only what the subclass adds. Completing an operation removes it
from the timer at once, however distant its timeout; a broker that kept completed requests until their
`request.timeout.ms` would leak. Its entries in watcher lists stay until the purgatory purges them. Kafka:
DelayedOperation.
"""

from collections.abc import Hashable, Sequence

from mypy_extensions import i64, mypyc_attr

from odradek.timer.task import TimerTask, unlink


class OperationOwner:
    """The calls that an operation makes to the purgatory in which it is parked."""

    __slots__ = ()

    def operation_completed(self, operation: "DelayedOperation") -> None:
        """The operation has just completed, by an event, its timeout or `abandon`."""
        raise NotImplementedError

    def operation_timed_out(self, operation: "DelayedOperation") -> None:
        """The operation's timeout has passed. Completes it, but not while a handler is running."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """Subclasses define when they can complete and what happens then.

    `delay_ms` is the timeout; with 0 or less the operation expires as soon as it is parked. `watch_keys` are the keys
    under which it is parked; `watched_by` is the number of lists that still hold it. `is_expired`: it completed because
    of its timeout. `is_cancelled`: `cancel_for_key` removed it. `requester`, for inspection: whose request it is;
    opaque here, None if unknown.
    """

    __slots__ = (
        "is_abandoned",
        "is_cancelled",
        "is_completed",
        "is_expired",
        "owner",
        "requester",
        "watch_keys",
        "watched_by",
    )

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.is_completed: bool = False
        self.is_expired: bool = False
        self.is_cancelled: bool = False
        self.is_abandoned: bool = False
        self.owner: OperationOwner | None = None
        self.requester: object = None
        self.watch_keys: Sequence[Hashable] = ()
        self.watched_by: i64 = 0

    def try_complete(self) -> bool:
        """Must `return self.force_complete()` if the operation can complete now, else False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answers the request. Called once, after an event or the timeout."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Counts the timeout, if there is a metric for it. Called after `on_complete`."""

    def force_complete(self) -> bool:
        """Completes the operation unless it is completed. Returns True to the one caller that completed it."""
        if self.is_completed:
            return False
        self._end()
        self.on_complete()
        return True

    def abandon(self) -> bool:
        """Completes the operation without `on_complete`, as no client is left to answer. False if it was completed."""
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
        """Called by the timer. The owner completes the operation when the running handler has finished."""
        owner = self.owner
        if owner is not None:
            owner.operation_timed_out(self)
        else:
            expire(self)


def expire(operation: DelayedOperation) -> bool:
    """Completes an operation because its timeout has passed. False if it was already completed."""
    if operation.is_completed:
        return False
    operation.is_expired = True
    operation.force_complete()
    operation.on_expiration()
    return True

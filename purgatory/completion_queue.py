"""CompletionQueue: tries waiting operations after the running handler has finished, a bounded number at a time.

An append must not complete other requests while it runs: their responses would be read from a log that is still
changing. So code that changes state only notes the key, and the queue tries the key's operations later, from an empty
call stack. (Kafka forbids completing operations under a partition's lock and keeps an ActionQueue for that; this is the
single-threaded form.)

There are three kinds of work. Each has its own budget per drain, so that none starves the others:

A. *Expired operations*, oldest first: the timer found that their timeouts have passed.
B. *Keys*, each at most once, in the order in which they were noted: the operations that watch a key are tried. If a
   key's list is longer than the budget, it is tried in pieces; noting the key again meanwhile moves it to the end of
   the queue.
C. *Purges*: completed operations are removed from the lists of keys that had no events.

The budget counts watched keys (an operation with 50 partitions costs 50 to try). `call_soon` schedules the remaining
work after the loop has served its sockets. A handler may call `drain` as it finishes; otherwise the loop calls it next.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

import structlog
from mypy_extensions import i64

from odradek.purgatory.delayed_operation import DelayedOperation, OperationOwner, expire

DEFAULT_BUDGET = 100
"""Small enough that the first of many responses are written while the next ones are made."""


class KeyedOperations(OperationOwner):
    """The part of a purgatory that the queue uses."""

    __slots__ = ()

    def note_event(self, key: Hashable) -> bool:
        """Records an event for the key: its operations must be tried from the first. False if none watches the key."""
        raise NotImplementedError

    def complete_some(self, key: Hashable, budget: i64) -> i64:
        """Continues to try the key's operations; returns the remaining budget."""
        raise NotImplementedError

    def has_more(self, key: Hashable) -> bool:
        """Whether the budget ran out before all of the key's operations were tried."""
        raise NotImplementedError

    def purge_some(self, budget: i64) -> bool:
        """Continues the purge through `budget` entries; True if the pass has not finished."""
        raise NotImplementedError


class CompletionQueue:
    """Deferred work of one event loop. `call_soon` schedules a function after the running one (`loop.call_soon`)."""

    __slots__ = ("_budget", "_call_soon", "_draining", "_expired", "_keys", "_purges", "_scheduled")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], budget: int = DEFAULT_BUDGET) -> None:
        if budget < 1:
            raise ValueError(f"the budget of a drain must be 1 or more, not {budget}")
        self._call_soon = call_soon
        self._budget: i64 = budget
        self._expired: deque[DelayedOperation] = deque()
        self._keys: OrderedDict[tuple[KeyedOperations, Hashable], None] = OrderedDict()
        self._purges: dict[KeyedOperations, None] = {}
        self._scheduled = False
        self._draining = False

    def add(self, purgatory: KeyedOperations, key: Hashable) -> None:
        """Notes an event for `key`. Costs one look-up when no operation watches the key."""
        if purgatory.note_event(key):
            self._keys[(purgatory, key)] = None
            self._schedule()

    def add_expired(self, operation: DelayedOperation) -> None:
        """Notes that the operation's timeout has passed."""
        self._expired.append(operation)
        self._schedule()

    def add_purge(self, purgatory: KeyedOperations) -> None:
        """Notes that the purgatory's lists need purging."""
        self._purges[purgatory] = None
        self._schedule()

    @property
    def is_empty(self) -> bool:
        """Whether no work is queued."""
        return not (self._expired or self._keys or self._purges)

    def drain(self) -> None:
        """Does the work, up to the budget of each kind. A nested call has no effect: its work stays queued."""
        if self._draining:
            return
        self._draining = True
        try:
            self._drain_expired()
            self._drain_keys()
            self._drain_purges()
        finally:
            self._draining = False
        if not self.is_empty:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._scheduled_drain)

    def _scheduled_drain(self) -> None:
        self._scheduled = False
        self.drain()

    def _drain_expired(self) -> None:
        budget = self._budget
        expired = self._expired
        while budget > 0 and expired:
            budget -= 1
            operation = expired.popleft()
            try:
                expire(operation)
            except Exception:
                log_failure("expiration failed", operation)

    def _drain_keys(self) -> None:
        budget = self._budget
        keys = self._keys
        while budget > 0 and keys:
            item, _ = keys.popitem(last=False)
            purgatory, key = item
            budget = purgatory.complete_some(key, budget)
            if purgatory.has_more(key):
                keys[item] = None

    def _drain_purges(self) -> None:
        for purgatory in list(self._purges):
            if not purgatory.purge_some(self._budget):
                del self._purges[purgatory]


def log_failure(event: str, operation: DelayedOperation) -> None:
    """Logs an operation's exception with its traceback. It is not raised, so that the next operations still run."""
    structlog.get_logger("purgatory").exception(event, operation=repr(operation))

"""CompletionQueue: what may have become possible is looked at after the running handler, a bounded piece at a time.

An append must not answer other people's requests halfway through: their answers would read a log that is not finished
changing. So whoever changes a state only notes the key, and the queue looks at it later, with nobody on the stack.
(Kafka forbids completing operations under a partition's lock and keeps an ActionQueue for that; this is its
single-threaded form.)

Three kinds of work, each with a budget of its own per drain, so that none starves the others:

A. *Expired operations*, oldest first: the timer found their time-outs.
B. *Keys*, each at most once, in the order in which they were noted: the operations that watch them are tried. A key's
   list that is longer than the budget is tried in pieces; noting it again meanwhile makes it the last in the queue.
C. *Purges*: completed operations leave the lists of the keys that nothing happened to.

The budget is in watched keys (an operation of 50 partitions costs 50 to try). What is left goes on by `call_soon`,
after the loop has served its sockets. Whoever finishes a handler may call `drain` at once; otherwise the loop does it
next.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

import structlog
from mypy_extensions import i64

from odradek.purgatory.delayed_operation import DelayedOperation, OperationOwner, expire

DEFAULT_BUDGET = 100
"""So that the first of many answers are written while the next ones are made."""


class KeyedOperations(OperationOwner):
    """What the queue asks of a purgatory."""

    __slots__ = ()

    def note_event(self, key: Hashable) -> bool:
        """Something happened to the key: what watches it wants trying, from the first. False if nothing does."""
        raise NotImplementedError

    def complete_some(self, key: Hashable, budget: i64) -> i64:
        """Go on trying the key's operations; returns what is left of the budget."""
        raise NotImplementedError

    def has_more(self, key: Hashable) -> bool:
        """Whether the budget ended before the key's operations."""
        raise NotImplementedError

    def purge_some(self, budget: i64) -> bool:
        """Go on purging, through `budget` entries; True if the pass is not at its end."""
        raise NotImplementedError


class CompletionQueue:
    """Work for one event loop. `call_soon` runs a function after what is running now (`loop.call_soon`)."""

    __slots__ = ("_budget", "_call_soon", "_draining", "_expired", "_keys", "_purges", "_scheduled")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], budget: int = DEFAULT_BUDGET) -> None:
        if budget < 1:
            raise ValueError(f"a drain needs a budget of 1 or more, not {budget}")
        self._call_soon = call_soon
        self._budget: i64 = budget
        self._expired: deque[DelayedOperation] = deque()
        self._keys: OrderedDict[tuple[KeyedOperations, Hashable], None] = OrderedDict()
        self._purges: dict[KeyedOperations, None] = {}
        self._scheduled = False
        self._draining = False

    def add(self, purgatory: KeyedOperations, key: Hashable) -> None:
        """Note that something happened to `key`. Costs a look-up when nothing watches it."""
        if purgatory.note_event(key):
            self._keys[(purgatory, key)] = None
            self._schedule()

    def add_expired(self, operation: DelayedOperation) -> None:
        """Note that the operation's time is over."""
        self._expired.append(operation)
        self._schedule()

    def add_purge(self, purgatory: KeyedOperations) -> None:
        """Note that the purgatory's lists want purging."""
        self._purges[purgatory] = None
        self._schedule()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do."""
        return not (self._expired or self._keys or self._purges)

    def drain(self) -> None:
        """Do the work, up to the budget of each kind. No effect from inside: what is noted there has its turn."""
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
                log_failure("expiration_failed", operation)

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
    """Log, with its traceback, what an operation raised: the operations after it must not suffer for it."""
    structlog.get_logger("purgatory").exception(event, operation=repr(operation))

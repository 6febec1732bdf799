"""DelayedOperationPurgatory: where requests wait that cannot be answered yet.

    try_complete_else_watch(operation, keys)   tries it; if it must wait, parks it under every key and in the timer
    completions.add(purgatory, key)            notes an event; the key's operations are tried after the handler
    check_and_complete(key)                    tries them at once, for callers with an otherwise empty call stack
    cancel_for_key(key)                        removes a key's operations without completing them

**Counts.** `watched`: entries over all lists (Kafka's PurgatorySize: an operation counts once per key, completed ones
until they are purged). `delayed`: operations that wait (NumDelayedOperations). `completed`: operations that waited and
were completed by an event. `expired`: those completed by their timeout.

**Purging.** Completed operations stay in the lists of keys that have no events. `dead` is the exact number of
operations that are completed and still watched. When it exceeds `purge_interval`, a pass through all lists starts, with
a bounded number of entries per step (CompletionQueue, C). A step covers at least twice as many entries as were parked
since the last step, or a pass would never end under load. A pass looks at every entry, so a purgatory of a million
waiting operations must not start one for every thousand that complete: the next pass waits until the dead operations
are a sixteenth of the entries that the last pass looked at.

**Order.** One key's operations are tried oldest first. Nothing here is thread-safe; everything runs on the loop's
thread. Kafka: DelayedOperationPurgatory, without its shards, locks and last second try
(docs/decisions/one-thread-purgatory.md).
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from mypy_extensions import i64

from odradek.purgatory.completion_queue import CompletionQueue, KeyedOperations, log_failure
from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.watchers import Watchers
from odradek.timer.clock import Clock
from odradek.timer.system_timer import SystemTimer

DEFAULT_PURGE_INTERVAL: Final = 1000
ENTRIES_PER_DEAD: Final = 16
ENTRIES_PER_PARKED: Final = 2
NO_LIMIT: Final = 1 << 62


class WaitingOperation(NamedTuple):
    """A row of `waiting()`. Times are on the purgatory's clock (monotonic milliseconds)."""

    operation: DelayedOperation
    keys: tuple[Hashable, ...]
    age_ms: int
    deadline_ms: int


class DelayedOperationPurgatory(KeyedOperations):
    """Parked operations by key.

    `name` is its name in metrics (Kafka: Produce, Fetch, DeleteRecords). Several purgatories may share the timer.
    `purge_interval`, in operations, is Kafka's setting `*.purgatory.purge.interval.requests`.
    """

    __slots__ = (
        "_by_key",
        "_closed",
        "_lists",
        "_parked_since_step",
        "_pass_position",
        "_pass_seen",
        "_purge_cursor",
        "_purge_threshold",
        "clock",
        "completed",
        "completions",
        "dead",
        "delayed",
        "expired",
        "name",
        "purge_interval",
        "timer",
        "watched",
    )

    def __init__(
        self,
        name: str,
        timer: SystemTimer,
        clock: Clock,
        completions: CompletionQueue,
        purge_interval: int = DEFAULT_PURGE_INTERVAL,
    ) -> None:
        self.name = name
        self.timer = timer
        self.clock = clock
        self.completions = completions
        self.purge_interval: i64 = purge_interval
        self.watched: i64 = 0
        self.delayed: i64 = 0
        self.completed: i64 = 0
        self.expired: i64 = 0
        self.dead: i64 = 0
        self._by_key: dict[Hashable, Watchers] = {}
        self._lists: list[Watchers] = []
        self._purge_cursor: i64 = -1
        self._pass_position: i64 = 0
        self._pass_seen: i64 = 0
        self._parked_since_step: i64 = 0
        self._purge_threshold: i64 = purge_interval
        self._closed: bool = False

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Tries the operation; True if it completed at once. Otherwise parks it under all `keys` until its timeout.

        One try is enough: no event can occur between it and the parking. Raises ValueError without keys, since only
        the timeout could ever complete such an operation. After `shutdown` nothing waits: the operation is completed
        at once.
        """
        if not keys:
            raise ValueError("an operation that waits needs at least one key")
        if operation.try_complete():
            return True
        if operation.is_completed:
            return False
        if self._closed:
            return operation.force_complete()
        by_key = self._by_key
        for key in keys:
            watchers = by_key.get(key)
            if watchers is None:
                watchers = self._new_list(key)
            watchers.operations.append(operation)
        count: i64 = len(keys)
        operation.watch_keys = keys
        operation.watched_by = count
        operation.owner = self
        self.watched += count
        self._parked_since_step += count
        self.delayed += 1
        self.timer.add(operation)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Tries all operations of the key now; returns how many completed.

        A call from within one of this key's operations returns 0 and leaves the work to the completion queue.
        """
        watchers = self._by_key.get(key)
        if watchers is None:
            return 0
        if watchers.is_tried:
            self.completions.add(self, key)
            return 0
        watchers.completed = 0
        watchers.start_pass()
        self._try_pass(watchers, NO_LIMIT)
        return watchers.completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Removes the key's list and takes its operations out of the timer without completing them; returns them.

        If such an operation has another key, an event of that key may still complete it.
        """
        watchers = self._by_key.get(key)
        if watchers is None:
            return []
        cancelled: list[DelayedOperation] = []
        for operation in self._forget_list(watchers):
            if not operation.is_completed:
                operation.cancel()
                cancelled.append(operation)
                if not operation.is_cancelled:
                    operation.is_cancelled = True
                    self.delayed -= 1
        return cancelled

    def waiting(self) -> list[WaitingOperation]:
        """Every waiting operation, the longest-waiting first, with its keys, age and deadline."""
        now_ms = self.clock.now_ms()
        found: dict[int, WaitingOperation] = {}
        for watchers in self._lists:
            for operation in watchers.operations:
                if not (operation.is_completed or operation.is_cancelled or id(operation) in found):
                    deadline_ms: int = operation.expiration_ms
                    age_ms: int = now_ms - (operation.expiration_ms - operation.delay_ms)
                    keys = tuple(operation.watch_keys)
                    found[id(operation)] = WaitingOperation(operation, keys, age_ms, deadline_ms)
        return sorted(found.values(), key=age_of, reverse=True)

    def lists(self) -> list[Watchers]:
        """The watcher lists, for inspection in steps: a copy, whose lists change as operations come and go. Each of an
        operation's `watch_keys` has its list.
        """
        return list(self._lists)

    @property
    def watched_keys(self) -> int:
        """How many keys have a list. A list that becomes empty is removed."""
        return len(self._by_key)

    def check(self) -> None:
        """Asserts what holds between two calls: lists, counts and operations agree, and what is completed has left the
        timer. Not to be called while an operation is tried.
        """
        assert len(self._by_key) == len(self._lists), "a key has several lists or none"
        held: dict[DelayedOperation, int] = {}
        entries = 0
        for index, watchers in enumerate(self._lists):
            assert watchers.index == index, f"the list of {watchers.key} has another index"
            assert self._by_key.get(watchers.key) is watchers, f"{watchers.key} has another list"
            assert watchers.operations, f"the list of {watchers.key} is empty"
            entries += len(watchers.operations)
            for operation in watchers.operations:
                held[operation] = held.get(operation, 0) + 1
        for operation, times in held.items():
            assert operation.watched_by == times, f"{operation!r} is in {times} lists, not in {operation.watched_by}"
            assert not (operation.is_completed and operation.is_scheduled), f"{operation!r} is completed and scheduled"
        waiting = [one for one in held if not one.is_completed and not one.is_cancelled]
        dead = [one for one in held if one.is_completed]
        found = (self.watched, self.delayed, self.dead)
        expected = (entries, len(waiting), len(dead))
        assert found == expected, f"watched, delayed and dead are {found}, and the lists have {expected}"

    def shutdown(self) -> None:
        """Completes everything that waits; from now on nothing is parked."""
        self._closed = True
        for row in self.waiting():
            try:
                row.operation.force_complete()
            except Exception:
                log_failure("completion failed", row.operation)
        for watchers in list(self._lists):
            self._forget_list(watchers)

    # OperationOwner: called by operations

    def operation_completed(self, operation: DelayedOperation) -> None:
        if operation.is_expired:
            self.expired += 1
        elif not operation.is_abandoned:
            self.completed += 1
        if not operation.is_cancelled:
            self.delayed -= 1
        if operation.watched_by > 0:
            self.dead += 1
            if self.dead > self._purge_threshold and self._purge_cursor < 0:
                self._start_purge()

    def operation_timed_out(self, operation: DelayedOperation) -> None:
        self.completions.add_expired(operation)

    # KeyedOperations: called by the completion queue

    def note_event(self, key: Hashable) -> bool:
        watchers = self._by_key.get(key)
        if watchers is None:
            return False
        if watchers.is_passing:
            watchers.again = True
        return True

    def complete_some(self, key: Hashable, budget: i64) -> i64:
        watchers = self._by_key.get(key)
        if watchers is None:
            return budget
        if not watchers.is_passing:
            watchers.start_pass()
        return self._try_pass(watchers, budget)

    def has_more(self, key: Hashable) -> bool:
        watchers = self._by_key.get(key)
        return watchers is not None and (watchers.is_passing or watchers.again)

    def purge_some(self, budget: i64) -> bool:
        budget = max(budget, self._parked_since_step * ENTRIES_PER_PARKED)
        self._parked_since_step = 0
        while budget > 0 and self._purge_cursor >= 0:
            if self._purge_cursor < len(self._lists):
                budget -= self._purge_list(self._lists[self._purge_cursor], budget)
            else:
                self._next_to_purge(len(self._lists))
        return self._purge_cursor >= 0

    # Lists and entries

    def _new_list(self, key: Hashable) -> Watchers:
        watchers = Watchers(key, len(self._lists))
        self._lists.append(watchers)
        self._by_key[key] = watchers
        return watchers

    def _remove_list(self, watchers: Watchers) -> None:
        """Removes a list in O(1): the last list takes its index."""
        watchers.is_removed = True
        del self._by_key[watchers.key]
        last = self._lists.pop()
        if last is not watchers:
            last.index = watchers.index
            self._lists[last.index] = last
        if watchers.index == self._purge_cursor:
            self._pass_position = 0

    def _forget_list(self, watchers: Watchers) -> list[DelayedOperation]:
        """Removes a list with all its entries, even while one of its operations is tried. Returns the operations."""
        operations = watchers.operations
        if watchers.is_tried:
            del operations[watchers.hole_start : watchers.hole_end]
        self._remove_list(watchers)
        for operation in operations:
            self._drop_entry(operation)
        return operations

    def _drop_entry(self, operation: DelayedOperation) -> None:
        self.watched -= 1
        operation.watched_by -= 1
        if operation.watched_by == 0 and operation.is_completed:
            self.dead -= 1

    def _try_pass(self, watchers: Watchers, budget: i64) -> i64:
        """Continues the pass to its end or the budget's end; starts another pass if the key had an event meanwhile."""
        watchers.is_tried = True
        try:
            budget = self._try_entries(watchers, budget)
            while watchers.again and budget > 0:
                watchers.start_pass()
                budget = self._try_entries(watchers, budget)
        finally:
            watchers.is_tried = False
        if not watchers.is_removed and not watchers.operations:
            self._remove_list(watchers)
        return budget

    def _try_entries(self, watchers: Watchers, budget: i64) -> i64:
        operations = watchers.operations
        read: i64 = watchers.position
        write: i64 = read
        while read < watchers.stop and budget > 0:
            operation = operations[read]
            budget -= 1
            is_completed = operation.is_completed
            if not is_completed:
                budget -= len(operation.watch_keys) - 1
                watchers.hole_start = write
                watchers.hole_end = read
                is_completed = try_operation(operation)
                if watchers.is_removed:
                    return budget
                if is_completed:
                    watchers.completed += 1
            read += 1
            if is_completed:
                self._drop_entry(operation)
            else:
                operations[write] = operation
                write += 1
        if write < read:
            del operations[write:read]
            watchers.stop -= read - write
        watchers.position = write
        if write >= watchers.stop:
            watchers.position = watchers.stop = 0
        return budget

    # Purging

    def _start_purge(self) -> None:
        self._parked_since_step = 0
        self._pass_seen = 0
        self._next_to_purge(len(self._lists))
        self.completions.add_purge(self)

    def _next_to_purge(self, cursor: i64) -> None:
        """Moves to the preceding list. A pass runs from the last list to the first: no list can move ahead of it."""
        self._pass_position = 0
        self._purge_cursor = cursor - 1
        if self._purge_cursor < 0:
            self._purge_threshold = max(self.purge_interval, self._pass_seen // ENTRIES_PER_DEAD)

    def _purge_list(self, watchers: Watchers, budget: i64) -> i64:
        """Drops completed entries, looking at no more than `budget`; returns how many it looked at, at least 1."""
        if watchers.is_tried or watchers.is_passing:
            self._next_to_purge(self._purge_cursor)
            return 1
        operations = watchers.operations
        start: i64 = self._pass_position
        stop: i64 = min(len(operations), start + budget)
        read: i64 = start
        write: i64 = start
        while read < stop:
            operation = operations[read]
            read += 1
            if operation.is_completed:
                self._drop_entry(operation)
            else:
                operations[write] = operation
                write += 1
        if write < read:
            del operations[write:read]
        self._pass_seen += read - start
        self._pass_position = write
        if write >= len(operations):
            self._next_to_purge(self._purge_cursor)
            if not operations:
                self._remove_list(watchers)
        return max(read - start, 1)


def age_of(row: WaitingOperation) -> int:
    return row.age_ms


def try_operation(operation: DelayedOperation) -> bool:
    """Tries an operation; True if it is now completed. If the try raises, the operation waits on until its timeout."""
    try:
        operation.try_complete()
    except Exception:
        log_failure("completion failed", operation)
    return operation.is_completed

"""TimerTaskList: one bucket of a timing wheel.

    root <-> first <-> second <-> ... <-> last <-> root

The list is circular and doubly linked. The sentinel `root` is always there, so neither the first nor the last task is
a special case: adding sets four links, taking out sets two, and neither looks at any other task. An empty list is a
root that is its own neighbour.

A bucket expires as a whole, at the *start* of its range: `expiration_ms`, or -1 while it is in no round. It is in the
timer's queue exactly as long as that is not -1, with or without tasks: cancelled tasks leave an empty bucket behind,
which costs nothing but its turn. Kafka: TimerTaskList.
"""

from collections.abc import Iterator

from mypy_extensions import i64

from odradek.timer.task import TaskCounter, TimerTask, TimerTaskEntry, unlink


class TimerTaskList:
    """The tasks of one bucket, oldest first."""

    __slots__ = ("counter", "expiration_ms", "root")

    def __init__(self, counter: TaskCounter) -> None:
        self.counter = counter
        self.expiration_ms: i64 = -1
        self.root = TimerTaskEntry()
        self.root.next = self.root
        self.root.previous = self.root

    def set_expiration(self, expiration_ms: i64) -> bool:
        """Say when the bucket's range starts. True if that is news, that is, if a new round of this bucket begins."""
        if self.expiration_ms == expiration_ms:
            return False
        self.expiration_ms = expiration_ms
        return True

    def add(self, entry: TimerTaskEntry) -> None:
        """Append an entry that is in no list."""
        root = self.root
        last = root.previous
        assert last is not None
        entry.next = root
        entry.previous = last
        last.next = entry
        root.previous = entry
        counter = self.counter
        entry.counter = counter
        counter.tasks += 1

    def pop_first(self) -> TimerTask | None:
        """Take out the oldest task; None from an empty list."""
        first = self.root.next
        if first is None or first is self.root:
            return None
        unlink(first)
        assert isinstance(first, TimerTask)
        return first

    def tasks(self) -> Iterator[TimerTask]:
        """The tasks, oldest first; for looking, not while the list changes."""
        found: list[TimerTask] = []
        entry = self.root.next
        while isinstance(entry, TimerTask):
            found.append(entry)
            entry = entry.next
        return iter(found)

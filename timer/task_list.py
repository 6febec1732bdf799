"""TimerTaskList: one bucket of a timing wheel.

    root <-> first <-> second <-> ... <-> last <-> root

The list is circular and doubly linked. The sentinel `root` is always there, so neither the first nor the last task is
a special case: adding sets four links, removing sets two, and neither looks at any other task. An empty list is a
root that is its own neighbor.

A bucket expires as a whole, at the *start* of its range: `expiration_ms`, or -1 while the bucket is unused. The bucket
is in the timer's queue exactly while `expiration_ms` is not -1, with or without tasks: canceled tasks leave an empty
bucket behind, which costs only its poll. Kafka: TimerTaskList.
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
        """Sets the start of the bucket's range. True if it changed, that is, if a new round of this bucket begins."""
        if self.expiration_ms == expiration_ms:
            return False
        self.expiration_ms = expiration_ms
        return True

    def add(self, entry: TimerTaskEntry) -> None:
        """Appends an entry that is in no list."""
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
        """Removes and returns the oldest task; None if the list is empty."""
        first = self.root.next
        if first is None or first is self.root:
            return None
        unlink(first)
        assert isinstance(first, TimerTask)
        return first

    def count(self, most: i64) -> int:
        """Returns how many tasks are in the bucket, at most `most`; for inspection."""
        found: i64 = 0
        root = self.root
        entry = root.next
        while entry is not None and entry is not root and found < most:
            found += 1
            entry = entry.next
        return found

    def check(self) -> int:
        """Asserts that the links agree in both directions, and that every entry has this list's counter. Returns how
        many tasks there are.
        """
        found: i64 = 0
        root = entry = self.root
        while True:
            following = entry.next
            assert following is not None, "the links of a bucket end"
            assert following.previous is entry, "the links of a bucket disagree"
            if following is root:
                return found
            assert following.counter is self.counter, "a task in a bucket counts elsewhere"
            entry = following
            found += 1

    def tasks(self) -> Iterator[TimerTask]:
        """The tasks, oldest first; a snapshot for inspection."""
        found: list[TimerTask] = []
        entry = self.root.next
        while isinstance(entry, TimerTask):
            found.append(entry)
            entry = entry.next
        return iter(found)

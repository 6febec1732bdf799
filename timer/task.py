"""A task of the timer, which is its own entry in a bucket's list.

Kafka keeps two objects, TimerTask and TimerTaskEntry, so that one thread may move a task while another cancels it. With
one thread an entry is either *in* a list (it has neighbors) or not, and canceling is unlinking: the entry's fields are
the base of the task, and a parked operation costs one object less. The sentinel of a list is an entry but not a task.
"""

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr


class TaskCounter:
    """The number of tasks in one timer, over all its wheels and buckets."""

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        self.tasks: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTaskEntry:
    """A link of a circular list. `next`, `previous` and `counter` are None while the entry is in no list."""

    __slots__ = ("counter", "expiration_ms", "next", "previous")

    def __init__(self) -> None:
        self.expiration_ms: i64 = -1
        self.next: TimerTaskEntry | None = None
        self.previous: TimerTaskEntry | None = None
        self.counter: TaskCounter | None = None


def unlink(entry: TimerTaskEntry) -> bool:
    """Removes the entry from its list, in O(1), and clears its links, so that they keep no other entry alive.

    Returns False if the entry was in no list.
    """
    following, preceding, counter = entry.next, entry.previous, entry.counter
    if following is None or preceding is None or counter is None:
        return False
    preceding.next = following
    following.previous = preceding
    entry.next = None
    entry.previous = None
    entry.counter = None
    counter.tasks -= 1
    return True


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTask(TimerTaskEntry):
    """Runs once, `delay_ms` after it was added to a timer; with a delay of 0 or less it runs within `add`.

    `add` sets `expiration_ms`, on the timer's clock. Kafka: TimerTask.
    """

    __slots__ = ("delay_ms",)

    def __init__(self, delay_ms: int) -> None:
        super().__init__()
        self.delay_ms: i64 = delay_ms

    def run(self) -> None:
        """Does the work. Runs on the timer's thread and must not block; subclasses define it."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Removes the task from the timer. No effect on a task that has run or was canceled; it may be added again."""
        unlink(self)

    @property
    def is_scheduled(self) -> bool:
        """Whether the task is in a timer."""
        return self.next is not None


class DelayedCall(TimerTask):
    """Calls a function once, when it expires."""

    __slots__ = ("_function",)

    def __init__(self, delay_ms: int, function: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._function = function

    def run(self) -> None:
        self._function()

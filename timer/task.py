"""A task of the timer, which is its own entry in a bucket's list.

Kafka keeps two objects, TimerTask and TimerTaskEntry, so that a thread may move a task while another cancels it. With
one thread an entry is *in* a list (it has neighbours) or it is not, and cancelling is unlinking: the entry's fields
are simply the base of the task, and a parked operation costs one object less. The sentinel of a list is an entry that
is no task.
"""

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr


class TaskCounter:
    """How many tasks one timer holds, over all its wheels and buckets."""

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        self.tasks: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTaskEntry:
    """A link of a circular list. `next`, `previous` and `counter` are None while it is in no list."""

    __slots__ = ("counter", "expiration_ms", "next", "previous")

    def __init__(self) -> None:
        self.expiration_ms: i64 = -1
        self.next: TimerTaskEntry | None = None
        self.previous: TimerTaskEntry | None = None
        self.counter: TaskCounter | None = None


def unlink(entry: TimerTaskEntry) -> bool:
    """Take the entry out of its list, in O(1), and leave it without neighbours, so that nothing keeps it alive.

    False when it was in none.
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
    """Something to `run` once, `delay_ms` after it was added to a timer; a delay of 0 or less runs it while it is
    added.

    `expiration_ms`, on the timer's clock, is set by adding it. Kafka: TimerTask.
    """

    __slots__ = ("delay_ms",)

    def __init__(self, delay_ms: int) -> None:
        super().__init__()
        self.delay_ms: i64 = delay_ms

    def run(self) -> None:
        """What is due. Runs on the thread of the timer and must not block; subclasses define it."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Take the task out of the timer. No effect after it ran, or twice; it may be added again."""
        unlink(self)

    @property
    def is_scheduled(self) -> bool:
        """Whether the task waits in a timer."""
        return self.next is not None


class DelayedCall(TimerTask):
    """A function, called once when its time has come."""

    __slots__ = ("_function",)

    def __init__(self, delay_ms: int, function: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._function = function

    def run(self) -> None:
        self._function()

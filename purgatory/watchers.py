"""Watchers: the operations parked under one key, oldest first.

The list is lazy. An operation that completed for another reason (another key, its timeout) stays until the list is
tried or purged; removing it at once would need a search per key, which costs several times as much as the rest. So an
entry is one of

    pending      not completed: an event of this key tries it
    completed    skipped, and dropped by the next pass

A pass that tries the list can stop anywhere. It continues at `position` and ends at `stop`: operations parked meanwhile
were tried when they were parked. If the key has another event before the end, `again` makes the pass start over. When
a pass has ended, `stop` is 0. A purge skips lists that are being tried, since the try drops completed entries itself.
"""

from collections.abc import Hashable

from mypy_extensions import i64

from odradek.purgatory.delayed_operation import DelayedOperation


class Watchers:
    """One key's list. `index` is its place among the purgatory's lists, `completed` what the pass has completed.

    While an operation is tried, it stands at `hole_end`; the entries from `hole_start` up to it are stale.
    """

    __slots__ = (
        "again",
        "completed",
        "hole_end",
        "hole_start",
        "index",
        "is_removed",
        "is_tried",
        "key",
        "operations",
        "position",
        "stop",
    )

    def __init__(self, key: Hashable, index: i64) -> None:
        self.key = key
        self.index: i64 = index
        self.operations: list[DelayedOperation] = []
        self.is_removed: bool = False
        self.is_tried: bool = False
        self.position: i64 = 0
        self.stop: i64 = 0
        self.again: bool = False
        self.completed: i64 = 0
        self.hole_start: i64 = 0
        self.hole_end: i64 = 0

    @property
    def is_passing(self) -> bool:
        """Whether a pass has not come to its end. `position` may be 0 then: all that it has tried has completed."""
        return self.stop > 0

    def start_pass(self) -> None:
        """Starts a pass from the first entry to the current last one."""
        self.position = 0
        self.stop = len(self.operations)
        self.again = False

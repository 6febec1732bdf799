"""Watchers: the operations parked under one key, oldest first.

The list is lazy. An operation that completed for another reason (another key, its time-out) stays until the list is
tried or purged; removing it at once would cost a search per key, several times what everything else costs. So an
entry is one of

    pending      not completed: an event of this key tries it
    completed    to be skipped, and dropped by whoever comes by

A pass that tries the list can stop anywhere. It goes on at `position` and ends at `stop`: what is parked meanwhile was
tried when it was parked. If the key's state changes again before the end, `again` makes it start from the first once
more. A pass that purges leaves lists alone that are being tried, since those drop what is completed themselves.
"""

from collections.abc import Hashable

from mypy_extensions import i64

from odradek.purgatory.delayed_operation import DelayedOperation


class Watchers:
    """One key's list. `index` is its place among the purgatory's lists, `completed` what the pass has completed.

    While an operation is tried, it stands at `hole_end`, and what stands from `hole_start` up to it is left over.
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

    def start_pass(self) -> None:
        """Try from the first to what is the last now."""
        self.position = 0
        self.stop = len(self.operations)
        self.again = False

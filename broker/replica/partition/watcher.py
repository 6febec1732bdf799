"""The interface for objects that are notified when something visible to a fetch changes in a partition.

Apart from wakeups.py, which calls it and knows the partition, since the partition knows its watchers.
"""

from __future__ import annotations

from collections.abc import Hashable


class Watcher:
    """An element of a partition's `watchers`."""

    __slots__ = ()

    def awaken(self) -> Hashable | None:
        """Called when the partition has changed. Returns the key under which a fetch waits in the purgatory.

        If it returns a key, the caller keeps this watcher among the partition's watchers. Returns None if no fetch
        waits.
        """
        raise NotImplementedError

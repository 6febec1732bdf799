"""What wants to hear that something a fetch can see of a partition has changed."""

from __future__ import annotations

from collections.abc import Hashable


class Watcher:
    """One of a partition's `watchers`."""

    __slots__ = ()

    def awaken(self) -> Hashable | None:
        """The partition has changed. Returns the key under which a fetch waits in the purgatory.

        That fetch then stays among the partition's watchers. None if no fetch waits.
        """
        raise NotImplementedError

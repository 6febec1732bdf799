"""Notices of changes below one path of the metadata store: which of them are new to this broker, and when they go.

    (A) A notice is a sequential entry. A broker that changes something adds one; every broker watches the path.
    (B) Notices that this broker has known for EXPIRATION_MS are removed, by whichever broker comes first.

Source: Kafka's `ZkNodeChangeNotificationListener`.
"""

from __future__ import annotations

from itertools import takewhile

from odradek.broker.metadata_store.interface import Delete, MetadataStore, MetadataStoreError, NoEntry, Watch
from odradek.timer import Clock

EXPIRATION_MS = 15 * 60 * 1000
REMOVED_AT_ONCE = 100


class ChangeNotices:
    """The notices below `path`."""

    def __init__(self, store: MetadataStore, path: str, clock: Clock) -> None:
        self.path = path
        self._store = store
        self._clock = clock
        self._applied: dict[str, int] = {}
        """Those that have been applied, and when this broker saw them first, oldest first."""

    async def skip(self, watch: Watch) -> None:
        """Counts all notices as applied, because everything will be read after this; then watches for more. Raises
        MetadataStoreError.
        """
        for name in await self._store.children(self.path, watch):
            self._applied.setdefault(name, self._clock.now_ms())

    async def new(self, watch: Watch) -> list[str]:
        """Returns the names of those that have not been applied, oldest first, and watches for more. Forgets those that
        are gone. Raises MetadataStoreError.
        """
        names = await self._store.children(self.path, watch)
        present = set(names)
        self._applied = {name: seen_ms for name, seen_ms in self._applied.items() if name in present}
        return [name for name in names if name not in self._applied]

    def applied(self, name: str) -> None:
        """Notes that this broker has applied a notice: its name, or its path."""
        self._applied[name.rpartition("/")[2]] = self._clock.now_ms()

    async def remove_expired(self) -> None:
        """Removes old notices (B). Raises MetadataStoreError."""
        expired_ms = self._clock.now_ms() - EXPIRATION_MS
        expired = list(takewhile(lambda name: self._applied[name] <= expired_ms, self._applied))
        for start in range(0, len(expired), REMOVED_AT_ONCE):
            some = expired[start : start + REMOVED_AT_ONCE]
            for outcome in await self._store.pipeline([[Delete(f"{self.path}/{name}")] for name in some]):
                if isinstance(outcome, MetadataStoreError) and not isinstance(outcome, NoEntry):
                    raise outcome

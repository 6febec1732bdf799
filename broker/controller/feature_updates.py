"""The finalized features of the cluster (`/feature`, KIP-584): their first levels, and updates of them.

    (A) The controller that creates the entry writes the levels of a new cluster, if every registered broker supports
        them. Otherwise it writes none: they are raised by an update once all brokers can. A broker of Apache Kafka 3.9
        supports no feature, and stops if it finds one.
    (B) An entry that is there stays as it is. Only a store that no other broker shares may have one from before there
        were any features, which has never been changed: it gets the first levels, as there is nobody who lacks them.
    (C) Each controller brings the entry into the form of its inter.broker.protocol.version. Features that others have
        finalized are kept, also those that are not known here.
    (D) A broker that does not support a finalized feature is not used (broker_changes.py).

Source: Kafka's `KafkaController` (`enableFeatureVersioning`, `processFeatureUpdates`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.features.updates import FeatureUpdate, lacking, updated
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Create,
    Entry,
    EntryExists,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
)

log = structlog.get_logger("controller")


class FeatureUpdates:
    """The features in one term. `first`: the levels of a new cluster. `written` is called with the levels and the
    version of their entry, once these are known; `on_change` when there are others.
    """

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        first: Mapping[str, int],
        *,
        is_shared: bool,
        written: Callable[[Mapping[str, int], int], object],
        on_change: Callable[[], object],
    ) -> None:
        self._store = store
        self._context = context
        self._first = first
        self._is_shared = is_shared
        self._written = written
        self._on_change = on_change
        self._levels: Mapping[str, int] = {}
        self._version = 0
        self._damage: StoreDamaged | None = None

    async def begin(self, brokers: Collection[BrokerInfo]) -> None:
        """Creates the entry (A), or writes it anew if it is not as it must be (B, C). Raises ControllerMoved,
        MetadataStoreError.
        """
        while True:
            entry = await self._store.exists(znodes.FEATURE)
            try:
                levels = self._levels_of(entry, brokers)
            except StoreDamaged as error:
                log.error("finalized features left alone", reason=str(error))
                self._damage = error
                return
            data = znodes.encode_features(levels)
            if entry is not None and entry.data == data:
                self._damage = None
                self._know(levels, entry.version)
                return
            create = Create(znodes.FEATURE, data)
            operation: Operation = create if entry is None else Set(znodes.FEATURE, data, entry.version)
            try:
                await self._store.multi([operation])
            except (BadVersion, EntryExists, NoEntry):
                continue

    def _levels_of(self, entry: Entry | None, brokers: Iterable[BrokerInfo]) -> Mapping[str, int]:
        if entry is None:
            return {} if any(lacking(self._first, broker.features) for broker in brokers) else self._first
        levels = znodes.parse_features(entry.data)
        is_untouched = not levels and entry.version == 0 and not self._is_shared
        return self._first if is_untouched else levels

    def lacking(self, broker: BrokerInfo) -> list[str]:
        """Returns the finalized features that a broker does not support (D)."""
        return lacking(self._levels, broker.features)

    async def update(self, updates: Collection[FeatureUpdate], *, validate_only: bool) -> None:
        """Carries out all updates, or none. Raises INVALID_UPDATE_VERSION, ControllerMoved, MetadataStoreError."""
        brokers = self._context.brokers
        while True:
            if self._damage is not None:
                raise self._damage
            levels = updated(self._levels, updates, {broker: info.features for broker, info in brokers.items()})
            if validate_only or levels == self._levels:
                return
            try:
                await self._store.multi([Set(znodes.FEATURE, znodes.encode_features(levels), self._version)])
            except (BadVersion, NoEntry):
                await self.begin(list(brokers.values()))
                continue
            log.info("features updated", before=dict(self._levels), after=levels)
            self._know(levels, self._version + 1)
            self._on_change()
            return

    def _know(self, levels: Mapping[str, int], version: int) -> None:
        self._levels, self._version = levels, version
        self._written(levels, version)

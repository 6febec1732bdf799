"""Follows the levels of the cluster's features in the metadata store: `/feature`, which the controller writes.

A level that this broker does not support is logged, and the highest one that it supports holds. An entry that cannot be
parsed is logged, too, and what was known before still holds. Source: Kafka's `FinalizedFeatureChangeListener`.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.cluster.deltas import ApplyDelta, FeaturesChanged
from odradek.broker.cluster.store_follower import StoreFollower
from odradek.broker.features.features import SUPPORTED
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore, StoreDamaged
from odradek.broker.metadata_store.one_watch import OneWatch
from odradek.timer import Clock

log = structlog.get_logger("broker.features")


class FeatureFollower:
    """`apply` applies a delta. Call `load` after the store was opened."""

    def __init__(self, store: MetadataStore, apply: ApplyDelta, *, clock: Clock, spawn: Spawn) -> None:
        self._store = store
        self._apply = apply
        self._follower = StoreFollower(
            store,
            "features",
            {},
            read_everything=self._read,
            read_missing=self._read,
            clock=clock,
            spawn=spawn,
            log=log,
        )
        self._watch = OneWatch(store, znodes.FEATURE, self._follower.changed)

    async def load(self) -> None:
        """Reads the levels, and follows them. Raises StoreUnavailable if the store is closed."""
        await self._follower.load()

    async def _read(self) -> None:
        entry = await self._watch.read(self._store.exists)
        if entry is None:
            return
        try:
            levels = znodes.parse_features(entry.data)
        except StoreDamaged as error:
            log.error("finalized features not read", reason=str(error))
            return
        if unsupported := _unsupported(levels):
            log.error("finalized features are not supported", features=unsupported)
        await self._apply(FeaturesChanged(levels, entry.version))


def _unsupported(levels: Mapping[str, int]) -> dict[str, int]:
    highest = {name: feature.highest for name, feature in SUPPORTED.items()}
    return {name: level for name, level in levels.items() if level > highest.get(name, 0)}

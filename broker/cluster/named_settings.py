"""The settings of groups, and of subscriptions to client metrics: resources that need not exist to have settings.

    /config/groups/ID    /config/client-metrics/NAME

(A) Every broker has all of them in memory: `dynamic_configs.py` reads them at the start, and again when a notice names
    one. Settings that cannot be read are logged, and the defaults apply.
(B) The name of an entry is that of the resource as entity_names.py writes it. An entry without settings is removed.
    The folders are made with their first entry, so that a node leaves what Kafka leaves.

Source: Kafka 4's `GroupConfigManager`, `ClientMetricsManager`. Kafka on ZooKeeper stores none of them.
"""

from __future__ import annotations

import structlog

from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.entity_names import IMPOSSIBLE, entry_of, name_of
from odradek.broker.metadata_store.interface import Entry, MetadataStore, NoEntry, StoreDamaged
from odradek.protocol.wire_codes import ConfigResourceType

FOLDERS = {
    ConfigResourceType.GROUP: znodes.GROUP_CONFIGS,
    ConfigResourceType.CLIENT_METRICS: znodes.CLIENT_METRICS_CONFIGS,
}
TYPES = {
    znodes.GROUP_ENTITY: ConfigResourceType.GROUP,
    znodes.CLIENT_METRICS_ENTITY: ConfigResourceType.CLIENT_METRICS,
}
"""The types of resources by the kinds in notices."""
ENTRIES_PER_READ = 100

log = structlog.get_logger("broker.cluster")


class NamedSettings:
    """Reads them from the store into the cache."""

    def __init__(self, store: MetadataStore, cache: MetadataCache) -> None:
        self._store = store
        self._cache = cache

    async def read_all(self) -> None:
        """Reads the settings of all groups and subscriptions. Raises MetadataStoreError."""
        for resource_type, folder in FOLDERS.items():
            names = [name for name in map(name_of, await self._entries(folder)) if name is not None]
            for gone in self._cache.named_configs(resource_type).keys() - set(names):
                self._cache.put_named_config(resource_type, gone, {})
            for start in range(0, len(names), ENTRIES_PER_READ):
                await self._read(resource_type, names[start : start + ENTRIES_PER_READ])

    async def _entries(self, folder: str) -> list[str]:
        try:
            return list(await self._store.children(folder))
        except NoEntry:
            return []

    async def stored(self, resource_type: ConfigResourceType, name: str) -> dict[str, str]:
        """Returns the settings of one resource, from the store. Raises MetadataStoreError."""
        path = named_path(resource_type, name)
        return _config(path, await self._store.exists(path))

    async def _read(self, resource_type: ConfigResourceType, names: list[str]) -> None:
        paths = [named_path(resource_type, name) for name in names]
        for name, path, entry in zip(names, paths, await self._store.entries(paths), strict=True):
            self._cache.put_named_config(resource_type, name, _config(path, entry))


def named_path(resource_type: ConfigResourceType, name: str) -> str:
    """The path of the settings of a group or subscription (B)."""
    entry = name.replace(".", "%2E") if name in IMPOSSIBLE else entry_of(name)
    return f"{FOLDERS[resource_type]}/{entry}"


def _config(path: str, entry: Entry | None) -> dict[str, str]:
    try:
        return {} if entry is None else znodes.parse_config(path, entry.data)
    except StoreDamaged as error:
        log.error("stored settings ignored", path=path, reason=str(error))
        return {}

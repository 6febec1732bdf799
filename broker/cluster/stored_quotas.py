"""The quotas of clients in the metadata store. Apache Kafka's brokers and tools write them; Odradek only shows them.

    (A) A quota belongs to a user, a client id, a client id of one user, or an IP address. The name <default> stands for
        all that have no quota of their own.

            /config/users/U    /config/clients/C    /config/users/U/clients/C    /config/ips/A

        These entries have other settings, too, such as the credentials of users: those are not shown.
    (B) A filter may have a component for each kind of name. An entity is selected if it has all kinds that the filter
        has components for, and its names match. A strict filter selects only entities that have no other kinds.
    (C) Settings that cannot be parsed are logged, and there are none. A quota that is not a number is an error.

Source: Kafka's `ZkAdminManager`, `QuotaConfigs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.entity_names import IMPOSSIBLE, entry_of, name_of
from odradek.broker.metadata_store.interface import Entry, MetadataStore, NoEntry, StoreDamaged
from odradek.broker.metadata_store.read_back import retry_until_connected

USER, CLIENT_ID, IP = "user", "client-id", "ip"
FOLDERS = {USER: znodes.USER_CONFIGS, CLIENT_ID: znodes.CLIENT_CONFIGS, IP: znodes.IP_CONFIGS}
CLIENTS_OF_USER = "clients"
BOTH = (USER, CLIENT_ID)
KINDS_OF_ENTITIES = ((USER,), (CLIENT_ID,), BOTH, (IP,))
OF_CLIENTS = frozenset(("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"))
OF_ADDRESSES = frozenset(("connection_creation_rate",))
ENTRIES_PER_READ = 100
COST = 20
"""The cost of reading one entry, in items of a step."""
NUMBER = re.compile(r"[-+]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?=[dDfF]?$)")
"""A decimal number as Java reads it."""

log = structlog.get_logger("broker.cluster")


class AnyName(NamedTuple):
    """Matches every name, and the default."""


class ExactName(NamedTuple):
    """Matches one name; None is the default."""

    name: str | None


NameFilter = AnyName | ExactName


class QuotaFilter(NamedTuple):
    """Selects entities by their names (B). The components are by kind."""

    components: Mapping[str, NameFilter]
    is_strict: bool

    def may_select(self, kinds: Sequence[str]) -> bool:
        """Whether entities with names of these kinds may be selected."""
        given = self.components
        return all(kind in kinds for kind in given) and (not self.is_strict or len(given) == len(kinds))


class QuotaEntity(NamedTuple):
    """What has quotas. `entries`: the names of its entries in the store, one for each kind."""

    kinds: tuple[str, ...]
    entries: tuple[str, ...]

    @property
    def names(self) -> list[tuple[str, str | None]]:
        """Kinds and names; the name None is the default."""
        return [(kind, name_of(entry)) for kind, entry in zip(self.kinds, self.entries, strict=True)]

    @property
    def path(self) -> str:
        path = f"{FOLDERS[self.kinds[0]]}/{self.entries[0]}"
        return path if self.kinds != BOTH else f"{path}/{CLIENTS_OF_USER}/{self.entries[1]}"


class StoredQuotas:
    """All methods raise StoreUnavailable."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def entities(self, wanted: QuotaFilter) -> list[QuotaEntity]:
        """Returns the entities that a filter selects. Some may have no quotas."""
        found: list[QuotaEntity] = []
        for kinds in filter(wanted.may_select, KINDS_OF_ENTITIES):
            entries = await self._entries(FOLDERS[kinds[0]], wanted.components.get(kinds[0]))
            if kinds == BOTH:
                found += await self._clients_of(entries, wanted.components.get(CLIENT_ID))
            else:
                found += [QuotaEntity(kinds, (entry,)) async for entry in others_between(entries)]
        return found

    async def quotas(self, entities: Iterable[QuotaEntity]) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """Returns those of the entities, ENTRIES_PER_READ at most, that have quotas. Raises StoreDamaged (C)."""
        entities = list(entities)
        entries = await self._read([entity.path for entity in entities])
        found = []
        async for entity, entry in others_between(zip(entities, entries, strict=True), COST):
            own = _quotas(entity, entry)
            if own:
                found.append((entity, own))
        return found

    async def _entries(self, folder: str, wanted: NameFilter | None) -> list[str]:
        """The names of the entries in a folder that match. An exact one may not exist."""
        if isinstance(wanted, ExactName):
            return [] if wanted.name in IMPOSSIBLE else [entry_of(wanted.name)]
        try:
            return await retry_until_connected(self._store, lambda: self._store.children(folder))
        except NoEntry:
            return []

    async def _clients_of(self, users: Sequence[str], wanted: NameFilter | None) -> list[QuotaEntity]:
        """The client ids of users. Most users have none, so the folders that exist are looked for first."""
        found: list[QuotaEntity] = []
        for start in range(0, len(users), ENTRIES_PER_READ):
            some = users[start : start + ENTRIES_PER_READ]
            folders = [f"{znodes.USER_CONFIGS}/{user}/{CLIENTS_OF_USER}" for user in some]
            looked_up = zip(some, folders, await self._read(folders), strict=True)
            async for user, folder, entry in others_between(looked_up, COST):
                if entry is not None:
                    clients = await self._entries(folder, wanted)
                    found += [QuotaEntity(BOTH, (user, client)) async for client in others_between(clients)]
        return found

    async def _read(self, paths: Sequence[str]) -> list[Entry | None]:
        return await retry_until_connected(self._store, lambda: self._store.entries(paths))


def _quotas(entity: QuotaEntity, entry: Entry | None) -> dict[str, float]:
    """Raises StoreDamaged (C)."""
    if entry is None or entry.data is None:
        return {}
    try:
        config = znodes.parse_config(entity.path, entry.data)
    except StoreDamaged as error:
        log.error("stored settings of a client ignored", path=entity.path, reason=str(error))
        return {}
    shown = OF_ADDRESSES if entity.kinds == (IP,) else OF_CLIENTS
    return {key: _number(entity, key, value) for key, value in config.items() if key in shown}


def _number(entity: QuotaEntity, key: str, value: str) -> float:
    found = NUMBER.match(value.strip())
    if found is None:
        raise StoreDamaged(entity.path, f"{key} is not a number: {value!r}")
    return float(found[0])

"""The credentials of users for SCRAM. The metadata store keeps them in the settings of each user, /config/users/NAME.

    (A) Every broker has all of them in memory: `dynamic_configs.py` reads them at the start, and again when a notice
        names the user. A credential that cannot be read is logged, without its value, and is none.
    (B) The name of an entry is the user's as entity_names.py writes it. The entry <default> and entries below a user
        belong to quotas (stored_quotas.py).

Source: Kafka's `UserConfigHandler`, `CredentialProvider`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.entity_names import entry_of, name_of
from odradek.broker.metadata_store.interface import Entry, MetadataStore, StoreDamaged
from odradek.broker.security.sasl.scram import MECHANISMS, ScramCredential, parse_credential

USERS_PER_READ = 100
COST = 20
"""The cost of reading one user's credentials, in items of a step."""

log = structlog.get_logger("broker.cluster")


class UserCredentials:
    """The credentials by user and mechanism."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.by_user: dict[str, dict[str, ScramCredential]] = {}
        """And by mechanism. It remains the same object, which logins read."""

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Returns a user's credential for a mechanism, None if there is none."""
        return self.by_user.get(user, {}).get(mechanism)

    async def read_all(self) -> None:
        """Reads the credentials of all users. Raises MetadataStoreError."""
        found = await self.stored(await self.names())
        self.by_user.clear()
        async for user, config in others_between(found.items(), COST):
            self.put(user, config)

    def put(self, user: str, config: Mapping[str, str]) -> None:
        """Takes the settings of a user as they are stored."""
        found: dict[str, ScramCredential] = {}
        for mechanism in MECHANISMS:
            try:
                if mechanism in config:
                    found[mechanism] = parse_credential(config[mechanism])
            except ValueError as error:
                log.error("stored credential ignored", user=user, mechanism=mechanism, reason=str(error))
        self.by_user.pop(user, None)
        if found:
            self.by_user[user] = found

    async def names(self) -> list[str]:
        """Returns the names of all users that have settings, sorted. Raises MetadataStoreError."""
        entries = await self._store.children(znodes.USER_CONFIGS)
        return sorted(name for name in map(name_of, entries) if name is not None)

    async def stored(self, users: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the settings of those users that have any, from the store. Raises MetadataStoreError."""
        users = list(users)
        found: dict[str, dict[str, str]] = {}
        for start in range(0, len(users), USERS_PER_READ):
            some = users[start : start + USERS_PER_READ]
            entries = await self._store.entries([user_path(user) for user in some])
            found |= {
                user: _config(user, entry) for user, entry in zip(some, entries, strict=True) if entry is not None
            }
        return found


def user_of(entry_name: str) -> str | None:
    """The user whose entry this is, None if it belongs to quotas (B)."""
    return None if "/" in entry_name else name_of(entry_name)


def user_path(user: str) -> str:
    """The path of a user's settings (B)."""
    return f"{znodes.USER_CONFIGS}/{entry_of(user)}"


def _config(user: str, entry: Entry) -> dict[str, str]:
    """An entry without data has only entries below it."""
    if entry.data is None:
        return {}
    try:
        return znodes.parse_config(user_path(user), entry.data)
    except StoreDamaged as error:
        log.error("stored settings of a user ignored", user=user, reason=str(error))
        return {}

"""The names of users, clients and addresses as the names of entries below `/config`.

An entry is named as what it belongs to, with all but letters, digits and _ - . as %XX. The entry <default> belongs to
all that have none of their own; its name is None here. Source: Kafka's `Sanitizer`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from odradek.broker.metadata_store.znodes import DEFAULT_ENTITY

IMPOSSIBLE = ("", ".", "..")
"""ZooKeeper takes none of these as the name of an entry."""


def entry_of(name: str | None) -> str:
    """Returns the name of the entry that belongs to a user, client or address."""
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def name_of(entry: str) -> str | None:
    """Returns the user, client or address that an entry belongs to."""
    return None if entry == DEFAULT_ENTITY else unquote(entry)

"""What a new embedded store begins with: entries without data, the same in every store. It depends on their paths
alone, so it is made once for all stores of a process, and nothing of it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store.interface import Create, Entry
from odradek.broker.metadata_store.journal import encode_journal_header, encode_transaction
from odradek.broker.metadata_store.tree import MetadataTree

NO_SESSION = 0


class Beginning(NamedTuple):
    """The content of the journal, and the entries after its transaction, which has this number."""

    journal: bytes
    number: int
    entries: Mapping[str, Entry | None]


@cache
def beginning(paths: tuple[str, ...]) -> Beginning:
    """Returns the beginning of a store with these entries; parents come first."""
    tree = MetadataTree()
    made = finished(tree.stage([Create(path) for path in paths], NO_SESSION))
    if not made.entries:
        return Beginning(encode_journal_header(), tree.number, MappingProxyType({}))
    journal = encode_journal_header() + encode_transaction(made.number, made.entries)
    return Beginning(journal, made.number, MappingProxyType(made.entries))

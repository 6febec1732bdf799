"""A place in a store of this process: obstore's own, with the conditional puts of an object store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from obstore.store import MemoryStore

from odradek.pipeline.state.location import Location


@dataclass(frozen=True, slots=True)
class InMemory(Location):
    """`store`: obstore's."""

    store: Any = None

    def _store(self) -> Any:
        return self.store


def in_memory() -> InMemory:
    """An empty place."""
    return InMemory("memory://here", {}, MemoryStore())

"""What consumer groups know of the cluster's topics: an interface, so that nothing here reads a metadata cache."""

from __future__ import annotations

from collections.abc import KeysView
from typing import Protocol
from uuid import UUID


class Topics(Protocol):
    """The topics as they are now. `version` is another one after each new topic."""

    @property
    def version(self) -> int: ...

    def topic_id(self, name: str) -> UUID | None:
        """Returns the id of the topic; None if it does not exist."""

    def name(self, topic_id: UUID) -> str | None:
        """Returns the name of the topic; None if it does not exist."""

    def partition_count(self, topic_id: UUID) -> int | None:
        """Returns the number of its partitions; None if it does not exist."""

    def hash_of(self, name: str) -> int:
        """Returns the hash of the topic, see `topic_hash`. It is kept until the topic changes: `TopicHashes`."""

    def names(self) -> KeysView[str]:
        """Returns all topics."""

"""Topics and partitions that somebody wants to have: what CreateTopics and CreatePartitions ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.protocol.errors import ErrorCode, ProtocolError

UNSET = -1
RESERVED_TOPIC = "__cluster_metadata"
NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""Shared by the many new topics that have no assignment and no settings of their own."""


class NewTopic(NamedTuple):
    """A topic to be created. UNSET counts stand for the broker's defaults; `assignments` (replicas by partition)
    excludes both counts.
    """

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, Sequence[int]] = NOTHING
    configs: Mapping[str, str | None] = NOTHING


class NewPartitions(NamedTuple):
    """The total number of partitions that a topic is to have; `assignments`, if given, has the replicas of each
    additional partition.
    """

    topic: str
    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


def repeated_in(names: Iterable[str]) -> dict[str, None]:
    """Returns the names that occur more than once, in order of first occurrence."""
    return {name: None for name, count in Counter(names).items() if count > 1}


def repetition_of(name: str) -> ProtocolError:
    """The error of a topic that a request names twice."""
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' occurs more than once in the request")

"""The parameters of a fetch, and the upper bound of each isolation level."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST

if TYPE_CHECKING:
    from odradek.storage.log.log import Log
    from odradek.storage.log_offsets import LogOffsetMetadata

CONSUMER = -1
FUTURE_LOCAL_REPLICA = -3

FIRST_VERSION_FROM_FOLLOWERS = 11
"""From this version on a consumer may read from a follower (KIP-392), so that the broker need not be the leader."""


FIRST_VERSION_WITH_TOPIC_IDS = 13
"""From this version on a request names its topics by id. (KIP-516)"""


class FetchIsolation(IntEnum):
    """How far a fetch may read."""

    HIGH_WATERMARK = 0
    COMMITTED = 1
    """Up to the last stable offset (`read_committed`)."""
    LOG_END = 2
    """Everything, for followers."""


class FetchParams:
    """The parameters of one Fetch request. Sizes in bytes, `max_wait_ms` in milliseconds.

    `max_bytes` is already capped by the broker's `fetch.max.bytes`, `min_bytes` by `max_bytes`.
    `max_partitions` is the most that the request or its session may have.
    """

    __slots__ = (
        "is_from_follower",
        "isolation",
        "max_bytes",
        "max_partitions",
        "max_wait_ms",
        "min_bytes",
        "replica_id",
        "uses_topic_ids",
        "version",
    )

    def __init__(
        self,
        version: int,
        *,
        replica_id: int = CONSUMER,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = 0,
        max_partitions: int = MAX_PARTITIONS_PER_REQUEST,
    ) -> None:
        self.version = version
        self.uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        self.max_partitions = max_partitions
        self.replica_id = replica_id
        self.is_from_follower = replica_id >= 0
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.min_bytes = min(min_bytes, max_bytes)
        if replica_id >= 0 or replica_id == FUTURE_LOCAL_REPLICA:
            self.isolation = FetchIsolation.LOG_END
        elif isolation_level == 1:
            self.isolation = FetchIsolation.COMMITTED
        else:
            self.isolation = FetchIsolation.HIGH_WATERMARK

    @property
    def require_leader(self) -> bool:
        return self.is_from_follower or self.version < FIRST_VERSION_FROM_FOLLOWERS


def upper_bound(log: Log, isolation: FetchIsolation) -> LogOffsetMetadata:
    """The offset where reading ends for this isolation level (exclusive)."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.positions.high_watermark
    if isolation is FetchIsolation.COMMITTED:
        return log.last_stable_offset_metadata
    return log.positions.log_end

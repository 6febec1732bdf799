"""What a fetch asks for: the request's parameters, and one target for each partition.

A target of a session outlives its request: it remembers what its client was told last (see fetch_session.py) and what
the last read found, so that a fetch that has to wait can tell how much has arrived since.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.fetch_session import FetchSession
    from odradek.broker.replica.partition import Partition
    from odradek.storage.log import Log
    from odradek.storage.log_offsets import LogOffsetMetadata

CONSUMER = -1
FUTURE_LOCAL_REPLICA = -3
NO_EPOCH = -1
UNKNOWN_OFFSET = -1

FIRST_VERSION_FROM_FOLLOWERS = 11
"""From here on a consumer may read from a follower (KIP-392), so that the broker need not be the leader."""


class FetchIsolation(IntEnum):
    """How far a fetch may read."""

    HIGH_WATERMARK = 0
    COMMITTED = 1
    """Up to the last stable offset: `read_committed`."""
    LOG_END = 2
    """Everything: followers."""


class FetchParams:
    """The parameters of one Fetch request. Sizes in bytes, `max_wait_ms` in milliseconds.

    `max_bytes` is already capped by the broker's `fetch.max.bytes`, `min_bytes` by `max_bytes`.
    """

    __slots__ = ("is_from_follower", "isolation", "max_bytes", "max_wait_ms", "min_bytes", "replica_id", "version")

    def __init__(
        self,
        version: int,
        *,
        replica_id: int = CONSUMER,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = 0,
    ) -> None:
        self.version = version
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
    """Where reading ends for this isolation (exclusive)."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark_metadata
    if isolation is FetchIsolation.COMMITTED:
        return log.last_stable_offset_metadata
    return log.log_end_offset_metadata


class FetchTarget:
    """One partition that a fetch asks for.

    fetch_offset, max_bytes, current_leader_epoch (-1: no check), last_fetched_epoch (-1: none), log_start_offset (the
    follower's) are as in the request. `hosted` and `start` are what the last read found: the partition, and where in
    its log the fetch offset lies; None where it failed. `told_high_watermark` and `told_log_start_offset` are what
    the session's client knows (-1: nothing, or an error).
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "hosted",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "session",
        "start",
        "told_high_watermark",
        "told_log_start_offset",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        self.topic_partition = topic_partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.hosted: Partition | None = None
        self.start: LogOffsetMetadata | None = None
        self.session: FetchSession | None = None
        self.told_high_watermark = UNKNOWN_OFFSET
        self.told_log_start_offset = UNKNOWN_OFFSET

    def ask_again(self, newer: FetchTarget) -> None:
        """Takes over what a later request of the session asks for the same partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def has_nothing_new(self, isolation: FetchIsolation) -> bool:
        """Whether a read now would find neither records nor anything else that the session's client was not told."""
        partition = self.hosted
        if partition is None or not partition.is_leader:
            return False
        log = partition.log
        return (
            upper_bound(log, isolation).message_offset <= self.fetch_offset <= log.log_end_offset
            and log.high_watermark == self.told_high_watermark
            and log.log_start_offset == self.told_log_start_offset
        )

"""What a fetcher decides to do next, and what it notifies. The letters are those of fetcher.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.broker.replica.follower.fetcher_state import Followed
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.truncation import Target

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition


class TruncateLogs(NamedTuple):
    """(A); then call `truncated`."""

    targets: dict[TopicPartition, Target]
    followed: dict[TopicPartition, Followed]


class FlushLogs(NamedTuple):
    """(B); then call `flushed`."""

    followed: list[Followed]


class Wait(NamedTuple):
    """(C), until this time, or (None) until partitions are added; then decide again."""

    until_ms: int | None


class ListOffsets(NamedTuple):
    """(D); then call `offsets_found` or `failed`."""

    request: ListOffsetsRequest
    timestamp: int
    followed: dict[TopicPartition, Followed]


class Fetch(NamedTuple):
    """(E); then call `fetched` or `failed`."""

    request: FetchRequest


Action = TruncateLogs | FlushLogs | Wait | ListOffsets | Fetch


class FollowerEvents(Protocol):
    """What the rest of the broker does when a follower's log has changed."""

    def appended(self, partition: Partition) -> None: ...

    def moved(self, partition: Partition) -> None:
        """The high watermark, the log start offset or the log's end moved."""
        ...

    def failed(self, partition: Partition, *, by_storage: bool) -> None:
        """The partition is no longer followed; `by_storage`: its log has failed."""
        ...

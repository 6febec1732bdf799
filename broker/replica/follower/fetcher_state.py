"""What a fetcher knows of one partition that it follows: where it fetches from, and its state.

    FETCHING       it is part of every fetch
    DELAYED        after an error it is not fetched for a while
    OUT_OF_RANGE   the leader has no records at the log's end; the leader's offsets are requested next
    TRUNCATING     a truncation is decided; it is done before the next fetch

(A) A partition has no offset of its own here: it is fetched from the end of its log. A response is therefore applied
    only if the log still ends where the request began, in the same leader epoch of the same topic. A late response of
    an older leadership, or of a deleted topic of the same name, changes nothing.
(B) How far a diverging log is truncated (`truncation_offset`): to where the logs part, as far as one exchange can show.
    KIP-101: the leader names the largest epoch that both may have, and where that epoch ends in its log. KIP-279: if
    the follower does not have that epoch, it goes back to the end of its largest smaller one, and fetches again.

Source: Kafka's PartitionFetchState and AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.storage.log.log import Log

UNKNOWN_LAG = -1
NO_OFFSET = -1


class FollowerState(Enum):
    """See the head of this file."""

    FETCHING = "fetching"
    DELAYED = "delayed"
    OUT_OF_RANGE = "out of range"
    TRUNCATING = "truncating"


_FETCHING, _DELAYED = FollowerState.FETCHING, FollowerState.DELAYED
_OUT_OF_RANGE, _TRUNCATING = FollowerState.OUT_OF_RANGE, FollowerState.TRUNCATING

MOVES: dict[FollowerState, tuple[FollowerState, ...]] = {
    _FETCHING: (_DELAYED, _OUT_OF_RANGE, _TRUNCATING),
    _DELAYED: (_FETCHING,),
    _OUT_OF_RANGE: (_DELAYED, _TRUNCATING),
    _TRUNCATING: (_FETCHING, _DELAYED),
}
"""Every legal move. A partition in any state may also be removed, or fail."""


class FetchFrom(NamedTuple):
    """Whom to follow, and in which leader epoch of which topic."""

    leader_id: int
    leader_epoch: int
    topic_id: UUID


class Position(NamedTuple):
    """What a fetch says of a partition. The leader's fetch session keeps it until it changes."""

    topic_id: UUID
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Followed:
    """One partition that a fetcher follows. `lag` is by how many records it is behind the leader's high watermark, or
    UNKNOWN_LAG. `leader_end_offset` is set while the partition is OUT_OF_RANGE, once the leader has returned it.
    `failures` counts the errors since the last response without one.
    """

    __slots__ = ("delayed_until_ms", "failures", "lag", "leader_end_offset", "partition", "source", "state")

    def __init__(self, partition: Partition, source: FetchFrom) -> None:
        self.partition = partition
        self.source = source
        self.state = FollowerState.FETCHING
        self.lag = UNKNOWN_LAG
        self.leader_end_offset = NO_OFFSET
        self.delayed_until_ms = 0
        self.failures = 0

    @property
    def key(self) -> TopicPartition:
        return self.partition.topic_partition

    def move(self, state: FollowerState) -> None:
        """Enters the state. Raises ValueError if the move is not in MOVES."""
        if state not in MOVES[self.state]:
            raise ValueError(f"{self.key} cannot become {state.value} while it is {self.state.value}")
        self.state = state

    def position(self) -> Position:
        """Returns what the next fetch says of this partition."""
        log = self.partition.log
        return Position(
            self.source.topic_id,
            self.source.leader_epoch,
            log.state.log_end_offset,
            log.leader_epochs.latest_epoch,
            log.state.log_start_offset,
        )

    def is_at(self, sent: Position) -> bool:
        """Whether a response to a fetch from this position may be applied (A)."""
        source = self.source
        return (
            self.state is FollowerState.FETCHING
            and sent.fetch_offset == self.partition.log.state.log_end_offset
            and sent.leader_epoch == source.leader_epoch
            and sent.topic_id == source.topic_id
        )


def truncation_offset(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    """Returns the offset to truncate to (B) if the leader's log has `leader_epoch` up to `leader_end_offset`, and no
    epoch between that and the log's last one.
    """
    epoch, end_offset = log.end_offset_for_epoch(leader_epoch)
    if end_offset == NO_OFFSET:
        return min(leader_end_offset, log.state.log_end_offset)
    if epoch != leader_epoch:
        return min(end_offset, log.state.log_end_offset)
    return min(end_offset, leader_end_offset, log.state.log_end_offset)

"""Fetch sessions: a consumer of a thousand partitions sends only those that changed, and receives only those that
changed. (KIP-227)

A *full* fetch (epoch 0) lists all its partitions; if there is a free slot, its response opens a session. *Incremental*
fetches (epoch 1, 2, ...) add, change and remove partitions. Epoch -1 closes the session and reads without one. The
rules:

(A) An unknown session id is FETCH_SESSION_ID_NOT_FOUND; any epoch but the expected one is INVALID_FETCH_SESSION_EPOCH,
    which is also the response to the slower of two requests that crossed.
(B) An incremental response contains the partitions with records, an error, a diverging epoch, or a high watermark or
    log start offset that the client has not received. The other partitions cost nothing.
(C) A partition whose records were sent moves behind the others, so that max_bytes does not starve the last ones.
(D) From version 13 on a request names its partitions by topic ids, and the session keeps them by id (KIP-516): a topic
    that was deleted and created again is another topic, and both may stand in a session. The id is resolved once for
    each partition of a session, by its first read (log_reader.py, E). A session takes either names or ids:
    FETCH_SESSION_TOPIC_ID_ERROR for a request of the other kind.
(E) There are at most `max.incremental.fetch.session.cache.slots` sessions. A new one evicts the least recently used
    session if that was not used for two minutes; otherwise the smallest evictable session, if it is smaller than the
    new one. A session is evictable two minutes after its creation; for a follower's new session, every consumer's
    session is evictable and counts as smaller. A consumer's new session never evicts a follower's that is in use.

**Cost.** Kafka reads every partition of the session at every fetch. Here a session tracks which of its targets may have
changed: `pending`. A target for which a read found nothing new (FetchTarget.has_nothing_new) leaves `pending` and joins
its partition's `watchers`. Every change that is visible to a fetch notifies the watchers, which makes the targets
pending again. So a fetch over a thousand idle partitions reads none and waits on one key, the session itself; an append
costs one step for each session that is up to date.

**Followers.** Each fetch of a follower acknowledges what it has of every partition of the session. If it has everything
of a partition and is in its ISR, the target leaves `pending` like a consumer's, and the follower *attends* the session
(remote_replica.py): the leader need not visit the partition to know that the follower is caught up. A follower outside
the ISR is visited at every fetch, since each of them may let it join.

The broker's sessions, and how one request uses them, are in fetch_session_cache.py.

Source: Kafka's FetchSession.scala.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.replica.partition.remote_replica import Attended, RemoteReplica
from odradek.broker.replica.partition.watcher import Watcher
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log.log import Log
    from odradek.storage.log_offsets import LogOffsetMetadata

NO_EPOCH = -1
UNKNOWN_OFFSET = -1
INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_INT32 = 0x7FFFFFFF
UNRESOLVED = TopicPartition("", -1)
"""The partition of a target whose topic id is not resolved yet."""


class FetchIsolation(IntEnum):
    """How far a fetch may read."""

    HIGH_WATERMARK = 0
    COMMITTED = 1
    """Up to the last stable offset (`read_committed`)."""
    LOG_END = 2
    """Everything, for followers."""


def upper_bound(log: Log, isolation: FetchIsolation) -> LogOffsetMetadata:
    """The offset where reading ends for this isolation level (exclusive)."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.positions.high_watermark
    if isolation is FetchIsolation.COMMITTED:
        return log.last_stable_offset_metadata
    return log.positions.log_end


def next_epoch(epoch: int) -> int:
    """The next epoch: 1, 2, ... and after the largest one 1 again; the final epoch does not change. (KIP-227)"""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_INT32 else epoch + 1


class FetchTarget(Watcher):
    """One partition that a fetch requests.

    A session's target outlives its request: it keeps what was last sent to the client and what the last read found, so
    that a waiting fetch can compute how much has arrived since.

    `key` identifies the target in its session: the partition's name, or the topic id as a number and the partition's
    number (D). By id, `topic_partition` is UNRESOLVED until the first read; by name, `topic_id` is zero.

    fetch_offset, max_bytes, current_leader_epoch (-1: no check), last_fetched_epoch (-1: none), log_start_offset (the
    follower's) are as in the request. `hosted` and `start` are set by the last read: the partition, and the position of
    the fetch offset in its log; None if the read failed. `follower` is the leader's state of the follower, if the last
    read has recorded its position. `sent_high_watermark` and `sent_log_start_offset` are the values last sent to the
    session's client (-1: nothing, or an error).
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower",
        "hosted",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "start",
        "topic_id",
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
        self.key: Hashable = topic_partition
        self.topic_partition = topic_partition
        self.topic_id: UUID = ZERO_UUID
        self.partition = topic_partition.partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.hosted: Partition | None = None
        self.follower: RemoteReplica | None = None
        self.start: LogOffsetMetadata | None = None
        self.session: FetchSession | None = None
        self.sent_high_watermark = UNKNOWN_OFFSET
        self.sent_log_start_offset = UNKNOWN_OFFSET

    def identify(self, topic_id: UUID, partition: int) -> None:
        """Makes the target one by topic id (D). It was created with UNRESOLVED."""
        self.key = (topic_id.int, partition)
        self.topic_id = topic_id
        self.partition = partition

    def awaken(self) -> Hashable | None:
        """See Watcher: marks this target as pending in its session."""
        session = self.session
        return session if session is not None and session.awaken(self) else None

    def idle(self) -> None:
        """Nothing is new: the partition's next change wakes this target, which is not read until then."""
        assert self.hosted is not None
        assert self.session is not None
        self.hosted.watchers[self] = None
        if self.follower is not None:
            self.follower.attend(self.session)

    def stir(self) -> None:
        """Ends `idle` for the follower: its position is no longer known without a read."""
        if self.follower is not None and self.session is not None:
            self.follower.leave(self.session)

    def ask_again(self, newer: FetchTarget) -> None:
        """Copies the parameters of a later request of the session for the same partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def has_nothing_new(self, isolation: FetchIsolation) -> bool:
        """Whether a read now would find neither records nor anything else that was not yet sent to the session's
        client.
        """
        partition = self.hosted
        if partition is None or not partition.is_leader:
            return False
        if isolation is FetchIsolation.LOG_END and not self._is_in_sync(partition):
            return False  # its next fetch must be seen
        log = partition.log
        return (
            upper_bound(log, isolation).message_offset <= self.fetch_offset <= log.state.log_end_offset
            and log.state.high_watermark == self.sent_high_watermark
            and log.state.log_start_offset == self.sent_log_start_offset
        )

    def _is_in_sync(self, partition: Partition) -> bool:
        """Whether the leader knows the follower's position, and has it in the ISR."""
        follower = self.follower
        return (
            follower is not None
            and follower.log_end_offset == self.fetch_offset
            and follower.broker_id in partition.isr.committed
            and partition.remote_replicas.get(follower.broker_id) is follower
        )


FetchResult = tuple[FetchTarget, FetchResponse.PartitionData]
Targets = dict[Hashable, FetchTarget]
"""By `key`."""


class FetchSession(Attended):
    """The partitions that one client fetches, and what was last sent to the client for each."""

    __slots__ = (
        "authorized",
        "created_ms",
        "epoch",
        "id",
        "isolation",
        "parked",
        "pending",
        "privileged",
        "targets",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        *,
        privileged: bool,
        isolation: FetchIsolation,
        now_ms: int,
        uses_topic_ids: bool = False,
    ) -> None:
        super().__init__(now_ms)
        self.id = session_id
        self.privileged = privileged
        self.isolation = isolation
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.targets: Targets = {}
        self.pending: dict[FetchTarget, None] = {}
        self.authorized: object = None
        """What an authorizer has decided about the client and the topics (handlers/authorized_fetch.py)."""
        self.parked = 0
        """The number of waiting fetches of this session."""

    def open_with(self, results: Iterable[FetchResult]) -> None:
        """Adopts the targets of the full fetch that opens the session, and records what its response contains."""
        for target, data in results:
            target.session = self
            target.sent_high_watermark = data.high_watermark
            target.sent_log_start_offset = data.log_start_offset
            self.targets[target.key] = target
            self.pending[target] = None
        self.settle()

    def update(
        self, wanted: Targets, forgotten: Iterable[Hashable], isolation: FetchIsolation, max_partitions: int
    ) -> None:
        """Applies an incremental request. Raises POLICY_VIOLATION if the session would become too large."""
        if self._exceeds(max_partitions, wanted):
            raise ProtocolError(
                ErrorCode.POLICY_VIOLATION, f"a fetch session holds at most {max_partitions} partitions"
            )
        for key, newer in wanted.items():
            target = self.targets.get(key)
            if target is None:
                target = self.targets[key] = newer
                target.session = self
            else:
                target.stir()
                target.ask_again(newer)
            self.pending[target] = None
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self._drop(gone)
        if isolation is not self.isolation:
            self.isolation = isolation
            self.pending = dict.fromkeys(self.targets.values())

    def _exceeds(self, max_partitions: int, wanted: Targets) -> bool:
        if len(self.targets) + len(wanted) <= max_partitions:
            return False
        return len(self.targets.keys() | wanted) > max_partitions

    def settle(self) -> None:
        """Moves the pending targets that have nothing new to the watchers of their partitions. While a fetch waits, the
        others are watched, too, unless a quota holds them back: a change would not let them go.
        """
        for target in list(self.pending):
            if target.has_nothing_new(self.isolation):
                del self.pending[target]
                target.idle()
            elif self.parked and target.hosted is not None and target.start is not None:
                target.hosted.watchers[target] = None

    def awaken(self, target: FetchTarget) -> bool:
        """Called when a watched partition has changed. Returns True while a fetch waits, which must then also be
        notified of further changes.
        """
        target.stir()
        self.pending[target] = None
        return self.parked > 0

    def answer(self, results: Sequence[FetchResult]) -> list[FetchResult]:
        """Returns the results that must be sent to the client, and records them as sent (B, C)."""
        changed = []
        for target, data in results:
            if target.session is not self:
                continue  # dropped meanwhile
            size = len(data.records or b"")
            if size or data.error_code or self._is_news(target, data):
                changed.append((target, data))
                target.sent_high_watermark = UNKNOWN_OFFSET if data.error_code else data.high_watermark
                target.sent_log_start_offset = data.log_start_offset
            if size and target in self.pending:
                del self.pending[target]
                self.pending[target] = None
        self.settle()
        return changed

    @staticmethod
    def _is_news(target: FetchTarget, data: FetchResponse.PartitionData) -> bool:
        return (
            data.high_watermark != target.sent_high_watermark
            or data.log_start_offset != target.sent_log_start_offset
            or data.preferred_read_replica != -1
            or data.diverging_epoch is not None
        )

    def check(self) -> None:
        """Asserts what holds between two calls: a target that is not pending has nothing new, and its partition will
        wake it. A change that forgets to do so would leave the client waiting.
        """
        for key, target in self.targets.items():
            assert target.key == key, f"{key} has the target of {target.key}"
            assert target.session is self, f"the target of {key} is of another session"
            if target not in self.pending:
                assert target.hosted is not None, f"{key} waits without a partition"
                assert target in target.hosted.watchers, f"nothing wakes {key}"
                assert target.has_nothing_new(self.isolation), f"{key} has news and is not pending"
        assert self.pending.keys() <= set(self.targets.values()), "a target is pending that the session does not have"

    def close(self) -> None:
        """Removes the targets from the watchers of all partitions."""
        for target in self.targets.values():
            self._drop(target)

    def _drop(self, target: FetchTarget) -> None:
        """Removes a target. After a failed read it no longer knows which partition watches it, which may wake it once
        more.
        """
        target.stir()
        target.session = None
        self.pending.pop(target, None)
        if target.hosted is not None:
            target.hosted.watchers.pop(target, None)

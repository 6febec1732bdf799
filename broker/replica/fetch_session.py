"""Fetch sessions: a consumer of a thousand partitions names only those that changed, and is told only of those that
changed. (KIP-227)

A *full* fetch (epoch 0) names all its partitions; if there is room its answer opens a session. *Incremental* fetches
(epoch 1, 2, ...) add, move and forget partitions. Epoch -1 closes the session and reads without one. The rules, by
letter:

(A) An unknown session id is FETCH_SESSION_ID_NOT_FOUND, any epoch but the expected one INVALID_FETCH_SESSION_EPOCH;
    also for the slower of two requests that crossed, when its turn to be answered comes.
(B) An incremental answer carries the partitions with records, an error, a diverging epoch, or a high watermark or log
    start offset that the client was not told. The others cost nothing.
(C) A partition whose records were sent goes behind the others, so that max_bytes does not starve those at the end.
(D) At most `max.incremental.fetch.session.cache.slots` sessions. For a new one goes, in this order: the least
    recently used one if it was not used for two minutes; else the smallest of those that may go, if it is smaller
    than the new one. Followers' sessions go only to followers' until they are two minutes old, and no consumer's
    session younger than that goes to a consumer.

**Cost.** Kafka reads every partition of the session at every fetch. Here a session knows which of its targets may
have news: `pending`. A target that a read found with nothing new (FetchTarget.has_nothing_new) leaves `pending` and
is put among its partition's `watchers`; whatever changes what a fetch can see wakes the watchers, which brings them
back. So a fetch over a thousand quiet partitions reads none and waits on one key, the session itself, and an append
costs one step for each session that had been told everything. Followers' sessions keep all targets pending, since
each of their fetches tells the leader where they stand.

Contexts (one request's view) are in fetch_context.py, the broker's sessions in fetch_session_cache.py.

Source: Kafka's FetchSession.scala.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.broker.replica.fetch_params import FetchIsolation, upper_bound
from odradek.broker.replica.watcher import Watcher
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.partition import Partition
    from odradek.storage.log_offsets import LogOffsetMetadata

NO_EPOCH = -1
UNKNOWN_OFFSET = -1
INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_INT32 = 0x7FFFFFFF
MAX_PARTITIONS = 10_000
"""As many as one request may name: a session is one request that goes on."""


def next_epoch(epoch: int) -> int:
    """1, 2, ... and round to 1 again; the final epoch stays. (KIP-227)"""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_INT32 else epoch + 1


class FetchTarget(Watcher):
    """One partition that a fetch asks for.

    A target of a session outlives its request: it keeps what its client was sent last and what the last read found, so
    that a fetch that has to wait knows how much has arrived since.

    fetch_offset, max_bytes, current_leader_epoch (-1: no check), last_fetched_epoch (-1: none), log_start_offset (the
    follower's) are as in the request. `hosted` and `start` are what the last read found: the partition, and where in
    its log the fetch offset lies; None where it failed. `sent_high_watermark` and `sent_log_start_offset` are what
    the session's client knows (-1: nothing, or an error).
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "hosted",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "start",
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
        self.sent_high_watermark = UNKNOWN_OFFSET
        self.sent_log_start_offset = UNKNOWN_OFFSET

    def awaken(self) -> Hashable | None:
        """See Watcher: the session learns that this target may have news."""
        session = self.session
        return session if session is not None and session.awaken(self) else None

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
            and log.high_watermark == self.sent_high_watermark
            and log.log_start_offset == self.sent_log_start_offset
        )


FetchResult = tuple[FetchTarget, FetchResponse.PartitionData]
Targets = dict[TopicPartition, FetchTarget]


class FetchSession:
    """The partitions one client fetches and what it was told of them."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "isolation",
        "last_used_ms",
        "parked",
        "pending",
        "privileged",
        "targets",
    )

    def __init__(self, session_id: int, *, privileged: bool, isolation: FetchIsolation, now_ms: int) -> None:
        self.id = session_id
        self.privileged = privileged
        self.isolation = isolation
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.targets: Targets = {}
        self.pending: dict[FetchTarget, None] = {}
        self.parked = 0
        """How many fetches of this session wait."""

    def open_with(self, results: Iterable[FetchResult]) -> None:
        """Takes over the targets of the full fetch that opens the session, with what its answer tells of them."""
        for target, data in results:
            target.session = self
            target.sent_high_watermark = data.high_watermark
            target.sent_log_start_offset = data.log_start_offset
            self.targets[target.topic_partition] = target
            self.pending[target] = None
        self.settle()

    def update(self, wanted: Targets, forgotten: Iterable[TopicPartition], isolation: FetchIsolation) -> None:
        """Applies an incremental request. Raises POLICY_VIOLATION for one that makes the session too large."""
        if len(self.targets) + len(wanted) > MAX_PARTITIONS and len(self.targets.keys() | wanted) > MAX_PARTITIONS:
            raise ProtocolError(
                ErrorCode.POLICY_VIOLATION, f"a fetch session holds at most {MAX_PARTITIONS} partitions"
            )
        for key, newer in wanted.items():
            target = self.targets.get(key)
            if target is None:
                target = self.targets[key] = newer
                target.session = self
            else:
                target.ask_again(newer)
            self.pending[target] = None
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self._drop(gone)
        if self.privileged or isolation is not self.isolation:
            self.isolation = isolation
            self.pending = dict.fromkeys(self.targets.values())

    def settle(self) -> None:
        """Lets go of the pending targets that have nothing new; their partitions will wake them."""
        if self.privileged:
            return
        for target in list(self.pending):
            if target.has_nothing_new(self.isolation):
                del self.pending[target]
                assert target.hosted is not None
                target.hosted.watchers.add(target)
            elif self.parked and target.hosted is not None:
                target.hosted.watchers.add(target)

    def awaken(self, target: FetchTarget) -> bool:
        """A watched partition changed. True while a fetch waits, which then wants to hear of further changes, too."""
        self.pending[target] = None
        return self.parked > 0

    def answer(self, results: Sequence[FetchResult]) -> list[FetchResult]:
        """(B) and (C): the results that the client must be told, remembered as told."""
        news = []
        for target, data in results:
            if self.targets.get(target.topic_partition) is not target:
                continue
            size = len(data.records or b"")
            if size or data.error_code or self._is_news(target, data):
                news.append((target, data))
                target.sent_high_watermark = UNKNOWN_OFFSET if data.error_code else data.high_watermark
                target.sent_log_start_offset = data.log_start_offset
            if size and target in self.pending:
                del self.pending[target]
                self.pending[target] = None
        self.settle()
        return news

    @staticmethod
    def _is_news(target: FetchTarget, data: FetchResponse.PartitionData) -> bool:
        return (
            data.high_watermark != target.sent_high_watermark
            or data.log_start_offset != target.sent_log_start_offset
            or data.preferred_read_replica != -1
            or data.diverging_epoch is not None
        )

    def close(self) -> None:
        """Leaves the watch lists of all partitions."""
        for target in self.targets.values():
            self._drop(target)

    def _drop(self, target: FetchTarget) -> None:
        self.pending.pop(target, None)
        if target.hosted is not None:
            target.hosted.watchers.discard(target)

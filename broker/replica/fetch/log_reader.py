"""Reads the partitions of one fetch, and computes how much a waiting fetch would return.

Partitions fail independently: a failed partition's response carries the error, the others are still read. The limits:

(A) Each partition returns at most its own max_bytes and what is left of the request's; if its first batch does not fit,
    it returns nothing. A follower gets whole batches, as it could not use a part of one.
(B) The first partition that has data returns at least one complete batch, however large, so that a consumer always
    makes progress. (KIP-74)
(C) A partition returns nothing beyond its isolation level's bound: the high watermark, the last stable offset, or a
    follower's log end. A fetch from an offset between that bound and the log's end waits for the bound to move.
(D) A client that sends its last fetched epoch receives the point where its log diverges from this one, instead of
    records. (KIP-595)
(E) A topic id is resolved by the first read that can: UNKNOWN_TOPIC_ID until then. If the partition with that name
    belongs to another topic later, because the topic was deleted and created again, INCONSISTENT_TOPIC_ID. (KIP-516)
(F) A throttled partition (quota/replication_quota.py) whose follower is not in sync returns nothing while the limit is
    exceeded, and all of them together at most a share of it. What they hold back does not count for min_bytes. (KIP-73)

Source: Kafka's ReplicaManager.readFromLog, Partition.readRecords and DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.replica.fetch.fetch_session import UNRESOLVED, FetchIsolation, FetchTarget, upper_bound
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import ANSWER_NOW

if TYPE_CHECKING:
    from odradek.broker.replica.fetch.fetch_session import FetchResult
    from odradek.broker.replica.partition.partition import Partition
    from odradek.broker.replica.partition.remote_replica import RemoteReplica
    from odradek.broker.replica.quota.replication_quota import ReplicationQuota
    from odradek.storage.log.log import Log
    from odradek.storage.log.read import ColdRead, FetchData
    from odradek.storage.log_offsets import LogOffsetMetadata

FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_FROM_FOLLOWERS = 11
"""From this version on a consumer may read from a follower (KIP-392), so that the broker need not be the leader."""
FIRST_VERSION_WITH_TOPIC_IDS = 13
"""From this version on a request names its topics by id. (KIP-516)"""
CONSUMER = -1
FUTURE_LOCAL_REPLICA = -3
NO_EPOCH = -1
UNDEFINED = -1
PartitionData = FetchResponse.PartitionData
FOUND_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


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


class FetchRead:
    """One pass over a fetch's targets, and its result. `answer_now`: there is an error or a diverging epoch, which does
    not wait for min_bytes. `cold`: reads that must come from the disk first; the pass is then repeated.

    `quota` is the limit of followers, if there is one. `is_throttled`: it holds a partition's records back (F).
    `again`: a repeated pass of a waiting fetch, whose partitions were already counted and whose follower's position was
    already recorded. `may_block`: wait for the disk rather than return cold reads.
    """

    __slots__ = (
        "again",
        "answer_now",
        "cold",
        "is_throttled",
        "may_block",
        "min_one",
        "names",
        "params",
        "quota",
        "quota_left",
        "remaining",
        "results",
        "size",
    )

    def __init__(
        self,
        params: FetchParams,
        again: bool = False,
        may_block: bool = False,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self.params = params
        self.quota = quota
        self.quota_left: int = 0 if quota is None or quota.is_exceeded else quota.share
        """How many bytes the next throttled partitions may return (F)."""
        self.is_throttled = False
        self.again = again
        self.may_block = may_block
        self.results: list[FetchResult] = []
        self.size = 0
        self.answer_now = False
        self.cold: list[ColdRead] = []
        self.remaining = params.max_bytes
        """How many bytes the next partitions may return (A)."""
        self.min_one = True
        """Whether no partition has returned data yet (B)."""
        self.names: dict[int, str] = {}
        """The topic ids that this pass has resolved, as numbers."""


def failed_partition(partition: int, error: ErrorCode, version: int) -> PartitionData:
    """The response of a failed partition. Clients below version 6 do not know KAFKA_STORAGE_ERROR;
    NOT_LEADER_OR_FOLLOWER makes them refresh their metadata.
    """
    if error == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    aborted: list[FetchResponse.AbortedTransaction] | None = None
    records: bytes | None = b""
    if error in FOUND_BEFORE_READING:
        aborted = []  # as in Kafka, which detects these errors before it reads
    elif error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        aborted, records = [], None  # as in Kafka, which discards what it has read
    return PartitionData(
        partition_index=partition, error_code=error, high_watermark=-1, aborted_transactions=aborted, records=records
    )


def _aborted(log: Log, fetched: FetchData) -> list[FetchResponse.AbortedTransaction]:
    """The aborted transactions whose records a read_committed consumer must skip. (KIP-98)"""
    return [
        FetchResponse.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.reader.aborted_transactions(fetched)
    ]


class LogReader:
    """`partition` returns a hosted partition or raises; `topic_name` resolves a topic id; `follower_moved` is called
    when a follower's fetch moved a watermark.
    """

    def __init__(
        self,
        partition: Callable[[TopicPartition], Partition],
        topic_name: Callable[[UUID], str | None],
        follower_moved: Callable[[Partition], None],
    ) -> None:
        self._partition = partition
        self._topic_name = topic_name
        self._follower_moved = follower_moved

    def read(self, found: FetchRead, targets: Iterable[FetchTarget]) -> None:
        """Reads the pass's next targets in turn (A, B)."""
        for target in targets:
            self._read_into(found, target)

    def _read_into(self, found: FetchRead, target: FetchTarget) -> None:
        try:
            data, cold = self._read_one(found, target)
        except ProtocolError as error:
            target.hosted = target.start = target.follower = None
            found.answer_now = True
            data = failed_partition(target.partition, error.code, found.params.version)
        else:
            size = len(data.records or b"")
            if cold is not None:
                found.cold.append(cold)
                size = cold.length
            elif size:
                found.size += size
            elif data.diverging_epoch is not None:
                found.answer_now = True
            if size:
                found.min_one = False
                found.remaining = max(0, found.remaining - size)
        found.results.append((target, data))

    def _read_one(self, found: FetchRead, target: FetchTarget) -> tuple[PartitionData, ColdRead | None]:
        params = found.params
        if target.topic_partition is UNRESOLVED:
            self._resolve(target, found.names)
        partition = self._partition_of(target)
        log = partition.local_log(target.current_leader_epoch, require_leader=params.require_leader)
        if params.version < FIRST_VERSION_WITH_ZSTD and log.config.compression_type == "zstd":
            raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        follower = None
        if params.is_from_follower:
            follower = partition.follower(params.replica_id, target.current_leader_epoch)
        data = PartitionData(
            partition_index=target.partition,
            high_watermark=log.state.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.state.log_start_offset,
            aborted_transactions=[] if params.isolation is FetchIsolation.COMMITTED else None,
            records=b"",
        )
        if not found.again:
            partition.stats.fetch_requests += 1
        target.hosted = partition
        if target.last_fetched_epoch != NO_EPOCH and self._diverges(partition, target, data):
            target.start = target.follower = None
            return data, None
        cold: ColdRead | None = None
        upper = upper_bound(log, params.isolation)
        if target.fetch_offset == upper.message_offset:
            target.start = upper
        elif found.quota is not None and self._is_throttled(found.quota, partition, params.replica_id):
            cold = self._read_throttled(found, target, log, upper, data)
        else:
            cold = self._read_records(found, target, log, upper, data, min(found.remaining, target.max_bytes))
        if follower is not None and not found.again:
            self._note_follower(partition, follower, target)
        return data, cold

    @staticmethod
    def _is_throttled(quota: ReplicationQuota, partition: Partition, replica_id: int) -> bool:
        return replica_id not in partition.isr.committed and quota.is_throttled(partition)

    def _read_throttled(
        self, found: FetchRead, target: FetchTarget, log: Log, upper: LogOffsetMetadata, data: PartitionData
    ) -> ColdRead | None:
        """Reads what the limit allows (F). If that is nothing, the target has no `start`, so that a waiting fetch does
        not look at it.
        """
        if found.quota_left <= 0:
            log.reader.check_range(target.fetch_offset)
            target.start = None
            found.is_throttled = True
            return None
        limit = min(found.remaining, target.max_bytes, found.quota_left)
        cold = self._read_records(found, target, log, upper, data, limit)
        found.quota_left -= len(data.records or b"") if cold is None else cold.length
        return cold

    @staticmethod
    def _read_records(
        found: FetchRead, target: FetchTarget, log: Log, upper: LogOffsetMetadata, data: PartitionData, limit: int
    ) -> ColdRead | None:
        fetched = log.reader.read(
            target.fetch_offset,
            limit,
            upper=upper,
            min_one_message=found.min_one,
            may_block=found.may_block,
            sendable=True,
            whole_batches=found.params.is_from_follower,
        )
        target.start = fetched.offset_metadata
        if not fetched.first_batch_incomplete:
            data.records = fetched.records
        if found.params.isolation is FetchIsolation.COMMITTED and data.records:
            data.aborted_transactions = _aborted(log, fetched)
        return fetched.cold

    def _resolve(self, target: FetchTarget, names: dict[int, str]) -> None:
        """Finds the target's topic (E), once for each topic of a pass."""
        topic_id = target.topic_id
        name = names.get(topic_id.int)
        if name is None:
            name = self._topic_name(topic_id)
            if name is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
            names[topic_id.int] = name
        target.topic_partition = TopicPartition(name, target.partition)

    def _partition_of(self, target: FetchTarget) -> Partition:
        """Returns the target's partition (E). The topic id is compared again if the partition is another object than at
        the last read.
        """
        partition = self._partition(target.topic_partition)
        if partition is not target.hosted and target.topic_id.int:
            known = partition.topic_id.int
            if known and known != target.topic_id.int:
                raise ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def _note_follower(self, partition: Partition, follower: RemoteReplica, target: FetchTarget) -> None:
        target.follower = follower
        if partition.update_follower(follower.broker_id, target.fetch_offset, target.log_start_offset):
            self._follower_moved(partition)

    @staticmethod
    def _diverges(partition: Partition, target: FetchTarget, data: PartitionData) -> bool:
        """Whether the logs diverge (D). Raises OFFSET_OUT_OF_RANGE if this log does not know the epoch, or starts after
        the fetch offset.
        """
        epoch, end = partition.end_offset_for_epoch(
            target.current_leader_epoch, target.last_fetched_epoch, require_leader=False
        )
        if epoch == UNDEFINED or target.fetch_offset < partition.log.state.log_start_offset:
            raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= target.last_fetched_epoch and end >= target.fetch_offset:
            return False
        data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
        return True

    def progress(self, params: FetchParams, target: FetchTarget) -> int:
        """How many bytes a waiting fetch would now get from this target. Returns ANSWER_NOW if waiting longer is
        pointless: the partition fails, the log has rolled since, or it was truncated below the fetch offset.
        """
        start = target.start
        if start is None:
            return 0
        try:
            partition = self._partition_of(target)
            log = partition.local_log(target.current_leader_epoch, require_leader=params.require_leader)
            if target.last_fetched_epoch != NO_EPOCH and self._diverges(partition, target, PartitionData()):
                return ANSWER_NOW
        except ProtocolError:
            return ANSWER_NOW
        upper = upper_bound(log, params.isolation)
        if start.message_offset >= upper.message_offset:
            return 0 if start.message_offset <= log.state.log_end_offset else ANSWER_NOW
        if start.segment_base_offset < upper.segment_base_offset:
            return ANSWER_NOW
        return min(upper.relative_position - start.relative_position, target.max_bytes)

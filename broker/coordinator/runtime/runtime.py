"""The runtime under both coordinators: tracks the partitions of the internal topic that this broker leads, and carries
out decisions on them.

When this broker becomes leader of a partition, the partition is replayed into a new shard (loading.py). Until replay
ends, requests for its ids are answered with COORDINATOR_LOAD_IN_PROGRESS. A shard's `act` appends a decision's records
as one batch, replays them, and calls the decision's `done` once the high watermark has passed them. All of this runs on
the event loop's thread, so between two calls a shard matches its log.

If the partition is lost while a decision waits for replication, `done` gets an error, possibly after the shard was
unloaded.

The last records of the log may not be replicated when this broker becomes the leader, and the next leader may not have
them. Groups do without such records: their members join again. A transaction must not be completed by one coordinator
and aborted by the next, so its topic is loaded when the high watermark has passed what was replayed. (Kafka does not
wait.)

Errors of the log are returned, so an append that raises an exception is a bug. If nothing was written, the client gets
UNKNOWN_SERVER_ERROR. If the batch was written, the shard no longer matches its log and is reloaded. (Kafka's runtime
reverts its state to a snapshot. That is not needed here because replay follows the append.)

Source: Kafka's `CoordinatorRuntime`, `GroupMetadataManager`, `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from functools import lru_cache
from struct import unpack
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from odradek.broker.background.tasks import Threads
from odradek.broker.coordinator.runtime.led_partition import LedPartition
from odradek.broker.coordinator.runtime.loading import Loader
from odradek.broker.coordinator.runtime.shard import NO_PRODUCER_ID, AppendFailed, Decision, NewShard, Shard
from odradek.broker.replica.leader.appends import PartitionAppendResult
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.plain_batch import PlainBatch, build_plain_batch
from odradek.protocol.record import Record
from odradek.protocol.records import Compression, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.throttled_lines import ThrottledLines
from odradek.timer import Clock

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.broker.replica.leader.appends import Appends
    from odradek.broker.replica.leadership_listener import Leaderships
    from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
    from odradek.storage.log.log import Log

REPLICATED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""What is returned when the high watermark has passed an offset."""
_INT_RANGE = 1 << 32
_SMALLEST_INT = -(1 << 31)
_LONGEST_KNOWN = 256
"""The hashes of longer ids are not cached, so that clients cannot fill the memory."""

log = structlog.get_logger("coordinator")


class Topic(Protocol):
    """What the runtime knows of its topic."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sized: ...


class RuntimeSettings(NamedTuple):
    """How to read and write the internal topic. `append_timeout_ms`: how long an append waits for replication.
    `loads_replicated`: a partition is loaded when all of its records are replicated. `loads_each_epoch`: a shard
    belongs to one leader epoch.
    """

    topic: str
    load_buffer_bytes: int
    append_timeout_ms: int
    required_acks: int = -1
    compression: int = Compression.NONE
    loads_replicated: bool = False
    loads_each_epoch: bool = False


class CoordinatorRuntime:
    """`topics`: those of the cluster by name. `planned_count()` returns the partition count that the topic would be
    created with. It raises COORDINATOR_NOT_AVAILABLE while this broker does not know whether the topic exists.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        *,
        new_shard: NewShard,
        topics: Mapping[str, Topic],
        planned_count: Callable[[], int],
        partitions: HostedPartitions,
        appends: Appends,
        leaderships: Leaderships,
        clock: Clock,
        background: Threads,
    ) -> None:
        self.settings = settings
        self._new_shard = new_shard
        self._topics = topics
        self._planned_count = planned_count
        self._counted: UUID | None = None
        self._count = 0
        """The partitions of the topic with this id."""
        self._partitions = partitions
        self._appends = appends
        self._leaderships = leaderships
        self._clock = clock
        self._led: dict[int, LedPartition] = {}
        self._stopping = False
        self._lines = ThrottledLines(clock)
        on_loaded = self._await_replication if settings.loads_replicated else self._loaded
        self._loader = Loader(settings.load_buffer_bytes, clock, background, on_loaded, self._load_again)

    # Start and stop

    def start(self) -> None:
        """Follows the leaderships of the topic's partitions from now on."""
        self._leaderships.report(self.settings.topic, self)

    def begin_loading(self) -> None:
        """Starts loading the led partitions. Until then their ids are answered with COORDINATOR_LOAD_IN_PROGRESS."""
        self._loader.begin()

    def stop(self) -> None:
        """Unloads every shard. From now on requests are answered with COORDINATOR_NOT_AVAILABLE."""
        self._stopping = True
        for partition in list(self._led):
            self.resigned(partition)

    # Finding shards

    def partition_for(self, key: str) -> int:
        """Returns the partition of a group id or transactional id. Raises as `planned_count` does.

        As in Kafka, partitions that are added later count only after a restart, so that ids keep their partitions
        while the broker runs.
        """
        topic = self._topics.get(self.settings.topic)
        if topic is None:
            return partition_for(key, self._planned_count())
        if topic.topic_id != self._counted:
            self._counted = topic.topic_id
            self._count = len(topic.partitions)
        return partition_for(key, self._count)

    def shard_for(self, key: str) -> Shard:
        """Returns the shard of an id.

        Raises COORDINATOR_NOT_AVAILABLE while the broker stops, NOT_COORDINATOR if it does not lead the id's
        partition, COORDINATOR_LOAD_IN_PROGRESS while the partition loads.
        """
        return self._find(self.partition_for(key)).shard

    def shard_of(self, partition: int) -> Shard:
        """Returns the shard of a partition. Raises as `shard_for` does."""
        return self._find(partition).shard

    def _find(self, partition: int) -> LedPartition:
        if self._stopping:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        led = self._led.get(partition)
        if led is None:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if led.is_loading:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    def shards(self) -> list[Shard]:
        """Returns the loaded shards, ascending by partition."""
        return [self._led[partition].shard for partition in sorted(self._led) if not self._led[partition].is_loading]

    @property
    def loading(self) -> bool:
        """Whether any partition is loading."""
        return any(led.is_loading for led in self._led.values())

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    # Called by the replica manager

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Starts loading the partition; an empty one is loaded at once. If the broker has led it all the time, a new
        epoch (another replica was lost, say) does not concern a shard that has none.
        """
        led = self._led.get(partition)
        if self._stopping or (led is not None and led.leader_epoch == leader_epoch):
            return
        key = TopicPartition(self.settings.topic, partition)
        leadership = self._leadership_of(key)
        if led is not None and led.leadership == leadership and not self.settings.loads_each_epoch:
            led.leader_epoch = leader_epoch
            return
        self.resigned(partition)
        led = self._led[partition] = LedPartition(key, leader_epoch, leadership, self._new_shard, self._act)
        self._loader.add(led, lambda: self._log_of(key))

    def _leadership_of(self, key: TopicPartition) -> int:
        partition = self._partitions.get(key)
        return -1 if partition is None else partition.leadership

    def _log_of(self, key: TopicPartition) -> Log | None:
        partition = self._partitions.get(key)
        return None if partition is None else partition.log

    def resigned(self, partition: int) -> None:
        """Unloads the partition's shard, if any."""
        led = self._led.pop(partition, None)
        if led is None:
            return
        led.give_up()
        try:
            led.shard.unload()
        except Exception:
            log.exception("coordinator unload failed", partition=str(led.topic_partition))
        log.debug("coordinator unloaded", partition=str(led.topic_partition), leader_epoch=led.leader_epoch)

    def _await_replication(self, led: LedPartition) -> None:
        """Everything was replayed. Waits until the high watermark has passed it."""

        def settled(error: ErrorCode) -> None:
            if not led.is_current():
                return
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self._await_replication(led)
            elif error in REPLICATED:
                self._loaded(led)

        replayed = PartitionAppendResult(last_offset=self._end_offset(led) - 1)
        self._appends.await_acks(led.topic_partition, replayed, settled, self.settings.append_timeout_ms)

    def _load_again(self, led: LedPartition) -> None:
        partition = led.topic_partition.partition
        self.resigned(partition)
        self.elected(partition, led.leader_epoch)

    def _loaded(self, led: LedPartition) -> None:
        led.is_loading = False
        try:
            led.shard.loaded()
        except Exception:
            log.exception("coordinator start failed", partition=str(led.topic_partition))

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Applies a marker appended to the partition. While the partition loads, the loader will read the marker."""
        led = self._led.get(partition)
        if led is not None and not led.is_loading:
            try:
                led.shard.replay_end_transaction(producer_id, producer_epoch, committed)
            except Exception:
                log.exception("transaction marker not replayed", partition=str(led.topic_partition))

    # Carrying out decisions

    def _act(self, led: LedPartition, decision: Decision) -> None:
        if not led.is_current():
            decision.done(AppendFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        appends = self._appends
        acks = self.settings.required_acks if decision.acks is None else decision.acks
        if not decision.records:
            unreplicated = led.unreplicated
            if unreplicated is None:
                decision.done(None)
            else:
                self._complete(led, decision, unreplicated, acks)
            return
        now_ms = self._clock.wall_ms()
        end_offset = self._end_offset(led)
        try:
            result = appends.append_as_coordinator(led.topic_partition, self._batch(decision, now_ms), acks)
        except Exception:
            self._append_broke(led, decision, end_offset)
            return
        if result.error is not ErrorCode.NONE:
            self._report_failure(led, decision, AppendFailed(result.error, result.error_message))
            return
        decision.base_offset = result.base_offset
        if decision.replay:
            led.unreplicated = result
            self._replay(led, decision, result, now_ms)
        self._complete(led, decision, result, acks)

    def _complete(self, led: LedPartition, decision: Decision, result: PartitionAppendResult, acks: int) -> None:
        """Calls `done` once the append is as safe as acks requires."""
        appends = self._appends
        if appends.is_safe(led.topic_partition, result, acks):
            if acks == self.settings.required_acks and led.unreplicated is result:
                led.unreplicated = None
            decision.done(None)
            return

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                decision.done(None)
            else:
                self._report_failure(led, decision, AppendFailed(error, is_written=True))

        timeout_ms = self.settings.append_timeout_ms if decision.timeout_ms is None else decision.timeout_ms
        appends.await_acks(led.topic_partition, result, settled, timeout_ms, acks)

    def _batch(self, decision: Decision, now_ms: int) -> PlainBatch | bytes:
        if self.settings.compression == Compression.NONE:
            return build_plain_batch(
                decision.records, now_ms, decision.producer_id, decision.producer_epoch, decision.base_sequence
            )
        return build_batch(
            [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(decision.records)],
            compression=self.settings.compression,
            producer_id=decision.producer_id,
            producer_epoch=decision.producer_epoch,
            base_sequence=decision.base_sequence,
            is_transactional=decision.producer_id != NO_PRODUCER_ID,
        )

    def _replay(self, led: LedPartition, decision: Decision, result: PartitionAppendResult, now_ms: int) -> None:
        for offset, record in enumerate(decision.records, result.base_offset):
            try:
                led.shard.replay(
                    record,
                    offset=offset,
                    timestamp_ms=now_ms,
                    producer_id=decision.producer_id,
                    producer_epoch=decision.producer_epoch,
                )
            except Exception:
                log.exception("coordinator record not replayed", partition=str(led.topic_partition), offset=offset)

    def _end_offset(self, led: LedPartition) -> int:
        log = self._log_of(led.topic_partition)
        return -1 if log is None else log.state.log_end_offset

    def _append_broke(self, led: LedPartition, decision: Decision, end_offset: int) -> None:
        """Call while an exception is handled. `end_offset` is the log end offset before the append."""
        is_written = self._end_offset(led) != end_offset
        log.exception(
            "coordinator append raised",
            partition=str(led.topic_partition),
            records=len(decision.records),
            written=is_written,
        )
        if not is_written:
            decision.done(AppendFailed(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        partition = led.topic_partition.partition
        self.resigned(partition)
        decision.done(AppendFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.elected(partition, led.leader_epoch)

    def _report_failure(self, led: LedPartition, decision: Decision, failure: AppendFailed) -> None:
        self._lines.log(
            log.warning,
            (led.topic_partition, failure.cause),
            "coordinator append failed",
            partition=str(led.topic_partition),
            records=len(decision.records),
            cause=failure.cause.name,
            answered=failure.code.name,
        )
        decision.done(failure)


def java_string_hash(text: str) -> int:
    """Returns `String.hashCode`, as Kafka's coordinators hash ids: computed over UTF-16 code units, as a signed 32-bit
    integer.
    """
    encoded = text.encode("utf-16-le", "surrogatepass")
    result = 0
    for unit in unpack(f"<{len(encoded) // 2}H", encoded):
        result = (31 * result + unit) % _INT_RANGE
    return result if result < 1 << 31 else result - _INT_RANGE


_known_hash = lru_cache(maxsize=8192)(java_string_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Returns the partition of a group id or transactional id. As in `Utils.abs`, the smallest int counts as 0."""
    value = _known_hash(key) if len(key) <= _LONGEST_KNOWN else java_string_hash(key)
    return 0 if value == _SMALLEST_INT else abs(value) % partition_count

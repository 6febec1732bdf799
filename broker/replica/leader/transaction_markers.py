"""Transaction markers: the control batches that end a transaction in a partition, appended on behalf of a coordinator.

A marker waits for the high watermark as a produce with acks=all does: until then a new leader might not have it. For a
partition of `__consumer_offsets`, the group coordinator is notified of the marker before the transaction coordinator,
so that the offsets of a transaction can be fetched once the transaction is reported as complete.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest and GroupCoordinator.onTransactionCompleted. (KIP-98)
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek.broker.replica.leader.appends import Appends
from odradek.broker.replica.leadership_listener import Leaderships
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.plain_batch import build_plain_marker
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

MARKER_TIMEOUT_MS = 30_000

log = structlog.get_logger("broker.replica")

OnMarked = Callable[[ErrorCode], object]


class TransactionMarkers:
    """`leaderships` are notified of the markers. `on_written(partition, producer id, its epoch, transaction version)`
    is called when a marker is in the log.
    """

    def __init__(
        self,
        appends: Appends,
        clock: Clock,
        leaderships: Leaderships,
        on_written: Callable[[TopicPartition, int, int, int], object],
    ) -> None:
        self._appends = appends
        self._clock = clock
        self._leaderships = leaderships
        self._on_written = on_written

    def append(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        on_done: OnMarked,
        transaction_version: int = 0,
        timeout_ms: int = MARKER_TIMEOUT_MS,
    ) -> None:
        """Appends a COMMIT or ABORT marker, and calls `on_done` once, possibly before returning: with NONE when the
        high watermark has passed the marker.

        Otherwise with UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS
        (nothing was written), NOT_ENOUGH_REPLICAS_AFTER_APPEND or REQUEST_TIMED_OUT (retriable); INVALID_PRODUCER_EPOCH
        and TRANSACTION_COORDINATOR_FENCED if a newer producer or coordinator has written to the partition;
        UNKNOWN_SERVER_ERROR for a bug of the broker. Markers may be appended again: a marker that finds no open
        transaction ends none. `transaction_version`: see `ProducerState.check_marker`.
        """
        marker = Marker(not committed, coordinator_epoch, self._clock.wall_ms(), transaction_version)
        try:
            batch = build_plain_marker(marker, producer_id, producer_epoch)
            result = self._appends.append_as_coordinator(topic_partition, batch)
        except Exception:
            log.exception("transaction marker failed", partition=str(topic_partition), producer_id=producer_id)
            on_done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if result.error is not ErrorCode.NONE:
            on_done(result.error)
            return
        self._on_written(topic_partition, producer_id, producer_epoch, transaction_version)

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._leaderships.transaction_ended(topic_partition, producer_id, producer_epoch, committed)
            on_done(error)

        self._appends.await_acks(topic_partition, result, settled, timeout_ms)

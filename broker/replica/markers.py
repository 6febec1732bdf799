"""Transaction markers: the control batches that end a transaction in a partition, appended for its coordinator.

A marker waits for the high watermark as a produce with acks=all does: until then another leader could lose it. Where
the partition is one of `__consumer_offsets`, its group coordinator hears of the marker before the transaction
coordinator does, so that offsets of a transaction that is said to be complete are there to be fetched.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest and GroupCoordinator.onTransactionCompleted. (KIP-98)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.replica.appends import Appends
from protocol.errors import ErrorCode
from protocol.records import ControlType, build_end_transaction_marker
from protocol.topic_partition import TopicPartition
from timer import Clock

if TYPE_CHECKING:
    from broker.replica.replica_manager import LeadershipListener

MARKER_TIMEOUT_MS = 30_000

OnMarked = Callable[[ErrorCode], object]


class Markers:
    """`listeners` by topic hear of the markers in that topic's partitions."""

    def __init__(self, appends: Appends, clock: Clock, listeners: Mapping[str, LeadershipListener]) -> None:
        self._appends = appends
        self._clock = clock
        self._listeners = listeners

    def append(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        on_done: OnMarked,
        timeout_ms: int = MARKER_TIMEOUT_MS,
    ) -> None:
        """Appends a COMMIT or ABORT, and calls `on_done` once, perhaps at once: NONE when the high watermark has
        passed it.

        Else UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS (nothing was
        written), NOT_ENOUGH_REPLICAS_AFTER_APPEND or REQUEST_TIMED_OUT (to be sent again); INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED where a newer producer or coordinator has been there. A marker may be appended
        again: one that finds no open transaction ends none.
        """
        marker = build_end_transaction_marker(
            ControlType.COMMIT if committed else ControlType.ABORT,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.wall_ms(),
        )
        result = self._appends.append_as_coordinator(topic_partition, marker)
        if result.error is not ErrorCode.NONE:
            on_done(result.error)
            return

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._tell_listener(topic_partition, producer_id, producer_epoch, committed)
            on_done(error)

        self._appends.await_acks(topic_partition, result, settled, timeout_ms)

    def _tell_listener(self, key: TopicPartition, producer_id: int, producer_epoch: int, committed: bool) -> None:
        listener = self._listeners.get(key.topic)
        if listener is not None:
            listener.transaction_ended(key.partition, producer_id, producer_epoch, committed)

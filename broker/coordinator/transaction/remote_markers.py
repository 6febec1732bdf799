"""Writes markers to the partitions that another broker leads, with WriteTxnMarkers requests.

Markers that wait for the same broker go into one request; one request is in flight at a time. A request has at most one
marker of a producer id, because the response names nothing else. If the broker cannot be reached, or its response lacks
a partition, the partition's code is NETWORK_EXCEPTION: the coordinator tries again, with the leader at that time. The
marker may have been written; writing it a second time changes nothing.

Source: Kafka's `TransactionMarkerChannelManager`, `TxnMarkerQueue`.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.coordinator.transaction.marker_writing import Marker, OnWritten
from odradek.broker.peers.network_errors import NetworkError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import WriteTxnMarkersRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

PARTITIONS_PER_REQUEST = 1000

log = structlog.get_logger("coordinator.transaction")

Codes = dict[TopicPartition, ErrorCode]


class MarkerPeer(Protocol):
    """The connection to the other broker: `Peer`."""

    broker_id: int

    async def send(self, request: Message) -> Any:
        """Returns the response. Raises NetworkError."""


class _Waiting(NamedTuple):
    marker: Marker
    on_written: OnWritten


class RemoteMarkerWriter:
    """A `MarkerWriter` for one other broker."""

    def __init__(self, peer: MarkerPeer, spawn: Spawn) -> None:
        self._peer = peer
        self._spawn = spawn
        self._waiting: deque[_Waiting] = deque()
        self._is_sending = False

    def write(self, marker: Marker, on_written: OnWritten) -> None:
        """See `MarkerWriter`. Never calls `on_written` before it returns."""
        for start in range(0, len(marker.partitions), PARTITIONS_PER_REQUEST):
            partitions = marker.partitions[start : start + PARTITIONS_PER_REQUEST]
            self._waiting.append(_Waiting(marker._replace(partitions=partitions), on_written))
        if self._waiting and not self._is_sending:
            self._is_sending = True
            self._spawn(self._send_all(), f"transaction markers to broker {self._peer.broker_id}")

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._take())
        finally:
            self._is_sending = False

    def _take(self) -> list[_Waiting]:
        """Takes the markers of the next request: the first ones, without a second marker of a producer id."""
        taken: dict[int, _Waiting] = {}
        left: deque[_Waiting] = deque()
        partitions = 0
        while self._waiting:
            each = self._waiting.popleft()
            size = len(each.marker.partitions)
            if each.marker.producer_id in taken or (taken and partitions + size > PARTITIONS_PER_REQUEST):
                left.append(each)
            else:
                taken[each.marker.producer_id] = each
                partitions += size
        self._waiting = left
        return list(taken.values())

    async def _send(self, taken: list[_Waiting]) -> None:
        codes: dict[int, Codes] = {}
        try:
            response = await self._peer.send(_request(each.marker for each in taken))
            codes = {result.producer_id: _codes(result) for result in response.markers}
        except NetworkError as error:
            log.info("transaction markers not sent", broker_id=self._peer.broker_id, reason=str(error))
        except Exception:
            log.exception("transaction markers not sent", broker_id=self._peer.broker_id)
        for each in taken:
            of_producer = codes.get(each.marker.producer_id, {})
            for partition in each.marker.partitions:
                self._report(each, partition, of_producer.get(partition, ErrorCode.NETWORK_EXCEPTION))

    def _report(self, each: _Waiting, partition: TopicPartition, code: ErrorCode) -> None:
        """Calls `on_written`. Its failure must not hold up the other markers."""
        try:
            each.on_written(partition, code)
        except Exception:
            log.exception("transaction marker not completed", partition=str(partition))


def _request(markers: Any) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=[_writable(marker) for marker in markers])


def _writable(marker: Marker) -> WriteTxnMarkersRequest.WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, partition in marker.partitions:
        topics.setdefault(topic, []).append(partition)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=partitions)
            for name, partitions in topics.items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
    )


def _codes(result: Any) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in result.topics
        for partition in topic.partitions
    }

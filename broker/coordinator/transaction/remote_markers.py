"""Writes markers to the partitions that another broker leads, with WriteTxnMarkers requests.

Markers that wait for the same broker go into one request (`peer_queue.py`), at most one of a producer id. If the broker
cannot be reached, or its response lacks a partition, the partition's code is NETWORK_EXCEPTION: the coordinator tries
again, with the leader at that time. The marker may have been written; writing it a second time changes nothing. A
broker that serves only version 1 of the request does not learn the marker's version of transactions.

Source: Kafka's `TransactionMarkerChannelManager`, `TxnMarkerQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.coordinator.transaction.marker_writing import Marker, OnWritten
from odradek.broker.coordinator.transaction.peer_queue import PARTITIONS_PER_REQUEST, PeerQueue
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import WriteTxnMarkersRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

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
        self._queue = PeerQueue(f"transaction markers to broker {peer.broker_id}", spawn, _measure, self._send)

    def write(self, marker: Marker, on_written: OnWritten) -> None:
        """See `MarkerWriter`. Never calls `on_written` before it returns."""
        for start in range(0, len(marker.partitions), PARTITIONS_PER_REQUEST):
            partitions = marker.partitions[start : start + PARTITIONS_PER_REQUEST]
            self._queue.add(_Waiting(marker._replace(partitions=partitions), on_written))

    async def _send(self, taken: Mapping[int, _Waiting]) -> None:
        codes: dict[int, Codes] = {}
        try:
            response = await self._peer.send(_request(each.marker for each in taken.values()))
            codes = {result.producer_id: _codes(result) for result in response.markers}
        except NetworkError as error:
            log.info("transaction markers not sent", broker_id=self._peer.broker_id, reason=str(error))
        except Exception:
            log.exception("transaction markers not sent", broker_id=self._peer.broker_id)
        for producer_id, each in taken.items():
            of_producer = codes.get(producer_id, {})
            for partition in each.marker.partitions:
                self._report(each, partition, of_producer.get(partition, ErrorCode.NETWORK_EXCEPTION))

    def _report(self, each: _Waiting, partition: TopicPartition, code: ErrorCode) -> None:
        """Calls `on_written`. Its failure must not hold up the other markers."""
        try:
            each.on_written(partition, code)
        except Exception:
            log.exception("transaction marker not completed", partition=str(partition))


def _measure(each: _Waiting) -> tuple[int, int]:
    return each.marker.producer_id, len(each.marker.partitions)


def _request(markers: Iterable[Marker]) -> WriteTxnMarkersRequest:
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
        transaction_version=marker.transaction_version,
    )


def _codes(result: Any) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in result.topics
        for partition in topic.partitions
    }

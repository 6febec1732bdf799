"""TransactionAdmin: lists and describes transactions, and aborts hanging ones (KIP-664), over an `AdminClient`.

A transaction can be aborted in two ways. `abort` sends InitProducerId to the coordinator, as a new producer of the
transactional id would: the old producer is fenced, and all partitions get their markers. `abort_in_partition` bypasses
the coordinator and writes a marker to a single partition. It is for hanging transactions: no coordinator knows them any
more, so they hold back the partition's last stable offset forever. `hanging` finds them.

Source: Kafka's `TransactionsCommand`, `AbortTransactionHandler`; KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.clients.admin.client import AdminClient, by_leader, check
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
)
from odradek.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import CoordinatorType

PARTITIONS_PER_REQUEST = 500

ProducerState = DescribeProducersResponse.ProducerState


class ListedTransaction(NamedTuple):
    """A transactional id and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class DescribedTransaction(NamedTuple):
    """Times in ms. `start_ms` is since 1970, or -1 if no transaction has begun."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """A producer with an open transaction in a partition."""

    topic_partition: TopicPartition
    producer: ProducerState


class TransactionAdmin:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_transactions(
        self, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
    ) -> list[ListedTransaction]:
        """Returns the transactions of all coordinators, sorted by transactional id. An empty filter matches all."""
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        found = []
        for broker_id in await self._admin.broker_ids():
            response = await self._admin.ask_when_loaded(broker_id, request)
            check(response.error_code)
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown transaction state: {unknown}")
            found += [
                ListedTransaction(one.transactional_id, broker_id, one.producer_id, one.transaction_state)
                for one in response.transaction_states
            ]
        return sorted(found)

    async def describe(self, transactional_id: str) -> DescribedTransaction:
        """Returns a transactional id's description. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        coordinator, response = await self._admin.ask_coordinator(
            CoordinatorType.TRANSACTION, transactional_id, request
        )
        (found,) = response.transaction_states
        is_unknown = found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        check(found.error_code, f"There is no transactional id '{transactional_id}'" if is_unknown else None)
        return DescribedTransaction(
            transactional_id,
            coordinator,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            sorted(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions),
        )

    async def producers(self, topic_partition: TopicPartition) -> list[ProducerState]:
        """Returns the active producers of the partition, as known to its leader. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        leader = await self._leader(topic_partition)
        (found,) = await self._producers(leader, [topic_partition])
        check(found.error_code, found.error_message)
        return sorted(found.active_producers, key=lambda producer: producer.producer_id)

    async def abort(self, transactional_id: str) -> DescribedTransaction:
        """Aborts the id's open transaction, fences its producer, and returns the description afterwards.

        Raises TRANSACTIONAL_ID_NOT_FOUND, and INVALID_TXN_STATE if no transaction is open.
        """
        described = await self.describe(transactional_id)
        if described.state != "Ongoing":
            message = f"'{transactional_id}' has no open transaction; its state is {described.state}"
            raise ProtocolError(ErrorCode.INVALID_TXN_STATE, message)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=described.timeout_ms)
        response = await self._admin.ask_broker(described.coordinator, request)
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            check(response.error_code)
        return await self._admin.until(
            lambda: self.describe(transactional_id), lambda found: not found.state.startswith("Prepare")
        )

    async def abort_in_partition(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Writes an ABORT marker. Raises the error of the partition's leader, such as INVALID_PRODUCER_EPOCH."""
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(
            name=topic_partition.topic, partition_indexes=[topic_partition.partition]
        )
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=coordinator_epoch,
        )
        leader = await self._leader(topic_partition)
        response = await self._admin.ask_broker(leader, WriteTxnMarkersRequest(markers=[marker]))
        check(response.markers[0].topics[0].partitions[0].error_code)

    async def open_at(self, topic_partition: TopicPartition, start_offset: int) -> ProducerState:
        """Returns the producer whose open transaction begins at `start_offset`. Raises INVALID_TXN_STATE."""
        for producer in await self.producers(topic_partition):
            if producer.current_txn_start_offset == start_offset:
                return producer
        message = f"No open transaction in {topic_partition} begins at offset {start_offset}"
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE, message)

    async def hanging(self, now_ms: int, longest_timeout_ms: int, topic: str | None = None) -> list[OpenTransaction]:
        """Returns transactions open for longer than `longest_timeout_ms` that no coordinator will end."""
        late = [
            one
            for one in await self._open_transactions(topic)
            if one.producer.last_timestamp <= now_ms - longest_timeout_ms
        ]
        if not late:
            return []
        expected = await self._expected({one.producer.producer_id for one in late})
        return [one for one in late if one.topic_partition not in expected.get(one.producer.producer_id, ())]

    async def _open_transactions(self, topic: str | None) -> list[OpenTransaction]:
        topics = await self._admin.topics() if topic is None else [await self._admin.topic(topic)]
        found = []
        for leader, keys in by_leader(topics).items():
            for start in range(0, len(keys), PARTITIONS_PER_REQUEST):
                asked = keys[start : start + PARTITIONS_PER_REQUEST]
                for key, answer in zip(asked, await self._producers(leader, asked), strict=True):
                    found += [
                        OpenTransaction(key, producer)
                        for producer in answer.active_producers
                        if producer.current_txn_start_offset >= 0
                    ]
        return sorted(found, key=lambda one: (one.topic_partition, one.producer.producer_id))

    async def _expected(self, producer_ids: Iterable[int]) -> dict[int, list[TopicPartition]]:
        """Returns, by producer id, the partitions to which coordinators will write markers."""
        found = {}
        for listed in await self.list_transactions(producer_ids=sorted(producer_ids)):
            try:
                found[listed.producer_id] = (await self.describe(listed.transactional_id)).partitions
            except ProtocolError as error:
                if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
        return found

    async def _leader(self, topic_partition: TopicPartition) -> int:
        topic = await self._admin.topic(topic_partition.topic)
        for partition in topic.partitions:
            if partition.partition_index == topic_partition.partition:
                check(partition.error_code)
                return partition.leader_id
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic_partition}")

    async def _producers(
        self, leader: int, keys: Sequence[TopicPartition]
    ) -> list[DescribeProducersResponse.PartitionResponse]:
        """Returns the leader's answers in the order of `keys`."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in keys:
            by_topic.setdefault(topic, []).append(partition)
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic.items()
            ]
        )
        response: DescribeProducersResponse = await self._admin.ask_broker(leader, request)
        answers = {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        return [answers[key] for key in keys]

"""What an administrator sees of transactions, and how one is ended that hangs (KIP-664), over an `AdminClient`.

A transaction is aborted in one of two ways. `abort` asks its coordinator, as a new producer of the transactional id
would: the old one is fenced, and all partitions get their markers. `abort_in_partition` writes a marker into a single
partition, past the coordinator: for a transaction that no coordinator knows of any more, which holds the partition's
last stable offset back for ever. `hanging` finds those.

Source: Kafka's `TransactionsCommand`, `AbortTransactionHandler`; KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.broker.admin.client import AdminClient, by_leader, check
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
    """A transactional id, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class DescribedTransaction(NamedTuple):
    """Times in ms; `start_ms` since 1970, -1 where nothing has begun."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """A producer that has a transaction open in a partition."""

    topic_partition: TopicPartition
    producer: ProducerState


class TransactionAdmin:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_transactions(
        self, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
    ) -> list[ListedTransaction]:
        """Of all coordinators, by transactional id; filters that are empty let all pass."""
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        found = []
        for broker_id in await self._admin.broker_ids():
            response = await self._admin.ask_when_loaded(broker_id, request)
            check(response.error_code)
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"There is no state {unknown}")
            found += [
                ListedTransaction(one.transactional_id, broker_id, one.producer_id, one.transaction_state)
                for one in response.transaction_states
            ]
        return sorted(found)

    async def describe(self, transactional_id: str) -> DescribedTransaction:
        """Raises TRANSACTIONAL_ID_NOT_FOUND."""
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
        """Who has written to the partition of late, as its leader knows. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        leader = await self._leader(topic_partition)
        (found,) = await self._producers(leader, [topic_partition])
        check(found.error_code, found.error_message)
        return sorted(found.active_producers, key=lambda producer: producer.producer_id)

    async def abort(self, transactional_id: str) -> DescribedTransaction:
        """Aborts the id's open transaction, fences its producer, and returns what it is like when that is done.

        Raises TRANSACTIONAL_ID_NOT_FOUND, and INVALID_TXN_STATE where nothing is open.
        """
        described = await self.describe(transactional_id)
        if described.state != "Ongoing":
            message = f"'{transactional_id}' has no open transaction; it is {described.state}"
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
        """Writes an ABORT marker. Raises what the partition's leader says, as INVALID_PRODUCER_EPOCH."""
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
        """The producer whose transaction begins there. Raises INVALID_TXN_STATE."""
        for producer in await self.producers(topic_partition):
            if producer.current_txn_start_offset == start_offset:
                return producer
        message = f"No transaction is open in {topic_partition} that begins at offset {start_offset}"
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE, message)

    async def hanging(self, now_ms: int, longest_timeout_ms: int, topic: str | None = None) -> list[OpenTransaction]:
        """Transactions that have been open for longer than any may, and that no coordinator will end."""
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
        """By producer id: where the coordinators will write markers."""
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
        """In the order of `keys`."""
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

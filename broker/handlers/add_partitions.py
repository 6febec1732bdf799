"""AddPartitionsToTxn (key 24): adds partitions to transactions, or verifies that they are in them.

    (A) A transaction gets all of its partitions or none. If one does not exist, the others return
        OPERATION_NOT_ATTEMPTED.
    (B) Up to version 3 a request names one transaction; clients use these versions. From version 4 on it names any
        number, each of which may only be verified: before a broker appends the first batch of a transaction, it asks
        another one whether the transaction is open; for a client of version 2 of transactions, to add the partitions
        (KIP-890). A partition to verify that is not in the transaction returns TRANSACTION_ABORTABLE, in version 4 too.
        Each transaction has its own result, even if it is named twice.
    (C) Up to version 3 a client may not name internal topics, and needs WRITE on the others. What version 4 names was
        authorized by the broker that asks.

Source: Kafka's `KafkaApis.handleAddPartitionsToTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from odradek.broker.background.stepwise import Pace, Steps, each_when_written, items_of
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch
from odradek.broker.handlers.access import Access, Check
from odradek.broker.handlers.transaction_outcomes import answered, code_for
from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS, MetadataCache
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import AclOperation, AclResourceType

FIRST_VERSION_OF_SEVERAL = 4
ITEMS_PER_TRANSACTION = 10
OF_BROKER = Check(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "from version 4 on")
WRITE_TRANSACTION = Check(
    AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id", "each partition"
)
WRITE_TOPIC = Check(AclOperation.WRITE, AclResourceType.TOPIC, "v3_and_below_topics.name", "each partition")
"""How many items of a step a change of a transaction counts as: it writes a batch."""

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult

CodeOf = Callable[[TopicPartition], ErrorCode]


class AddPartitionsHandler:
    """AddPartitionsToTxn (key 24)."""

    def __init__(self, coordinator: TransactionCoordinator, metadata: MetadataCache, access: Access) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._access = access

    def add_partitions_to_txn(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Steps[Any]:
        """Responds when the new partitions of all transactions are in the transaction log."""
        if context.api_version >= FIRST_VERSION_OF_SEVERAL:
            self._access.demand_on_cluster(context, OF_BROKER)
            return (yield from self._several(request, context))
        one = Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        code_of = yield from self._refusal(one, context)
        return answered(
            partial(self._start, one, context, refusal=code_of),
            lambda code_of: AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_topic_results(one.topics, code_of)
            ),
        )

    def _several(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Steps[Any]:
        results = _Results()
        pace = Pace()
        for transaction in request.transactions:
            self._start(transaction, context, results.expect(transaction))
            partitions = sum(len(topic.partitions) for topic in transaction.topics)
            if pace.step_ends(ITEMS_PER_TRANSACTION + items_of(transaction.transactional_id) + partitions):
                yield
        return results.answer()

    def _refusal(self, transaction: Transaction, context: RequestContext) -> Steps[CodeOf]:
        """Returns what the client may not do, as the error of each partition (C)."""
        access, name = self._access, transaction.transactional_id
        if not access.allows(context, WRITE_TRANSACTION, name):
            return lambda _: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        topics = [topic.name for topic in transaction.topics if topic.name not in INTERNAL_TOPICS]
        writable = yield from access.allowed(context, WRITE_TOPIC, topics)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

        def code_of(key: TopicPartition) -> ErrorCode:
            return ErrorCode.NONE if key.topic in writable and key.topic not in INTERNAL_TOPICS else denied

        return code_of

    def _start(
        self,
        transaction: Transaction,
        context: RequestContext,
        settle: Callable[[CodeOf], None],
        refusal: CodeOf = lambda _: ErrorCode.NONE,
    ) -> None:
        """Calls `settle` with the error of each partition, now or when the transaction log has the partitions."""
        name, coordinator, contains = transaction.transactional_id, self._coordinator, self._metadata.contains
        asked = frozenset(
            TopicPartition(topic.name, partition) for topic in transaction.topics for partition in topic.partitions
        )
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)

        def added(error: ProtocolError | None) -> None:
            code = code_for(error, context.api_version)
            settle(lambda _: code)

        if any(map(refusal, asked)) or not all(map(contains, asked)):
            not_attempted, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            settle(lambda key: refusal(key) or (not_attempted if contains(key) else unknown))  # (A)
        elif transaction.verify_only:
            settle(lambda key: coordinator.verify(name, producer.producer_id, producer.producer_epoch, key))
        else:
            client_version = EPOCH_PER_TRANSACTION if context.api_version >= FIRST_VERSION_OF_SEVERAL else 0
            coordinator.add_partitions(name, producer, asked, added, client_version)


class _Results:
    """The results of several transactions, as far as they are known."""

    def __init__(self) -> None:
        self._pending = PendingResponse()
        self._response = AddPartitionsToTxnResponse()
        self._waiting = 0
        self._all_started = False

    def expect(self, transaction: Transaction) -> Callable[[CodeOf], None]:
        """Returns the function to call with the error of each partition."""
        result = TransactionResult(transactional_id=transaction.transactional_id)
        self._response.results_by_transaction.append(result)
        self._waiting += 1

        def settle(code_of: CodeOf) -> None:
            result.topic_results = _topic_results(transaction.topics, code_of)
            self._waiting -= 1
            if self._all_started and not self._waiting:
                self._pending.complete(self._response)

        return settle

    def answer(self) -> AddPartitionsToTxnResponse | PendingResponse:
        """Returns the response, or the parked request if results are missing. Call it after the last `expect`."""
        self._all_started = True
        return self._pending if self._waiting else self._response


def partitions_to_add_or_verify(request: AddPartitionsToTxnRequest) -> Iterator[int]:
    """Yields the number of partitions of each topic. A transaction without topics counts as one."""
    yield from (len(topic.partitions) for topic in request.v3_and_below_topics)
    for transaction in request.transactions:
        yield from (len(topic.partitions) for topic in transaction.topics) if transaction.topics else (0,)


def add_partitions_error(request: AddPartitionsToTxnRequest, code: ErrorCode, message: str | None) -> Steps[Message]:
    """Up to version 3 returns the error for every partition, and from version 4 on for the request."""

    def refused(number: int) -> PartitionResult:
        return PartitionResult(partition_index=number, partition_error_code=code)

    def refused_topic(topic: Topic) -> TopicResult:
        return TopicResult(name=topic.name, results_by_partition=each_when_written(topic.partitions, refused))

    yield from ()
    topics = each_when_written(request.v3_and_below_topics, refused_topic)
    return AddPartitionsToTxnResponse(error_code=code, results_by_topic_v3_and_below=topics)


def _topic_results(topics: Sequence[Topic], code_of: CodeOf) -> list[TopicResult]:
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(
                    partition_index=partition, partition_error_code=code_of(TopicPartition(topic.name, partition))
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]

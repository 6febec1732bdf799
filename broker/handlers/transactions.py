"""InitProducerId (key 22) and transactions (keys 24 to 27, 65 and 66).

Turns the coordinator's outcomes into responses. Clients of old versions, which do not know PRODUCER_FENCED, receive
INVALID_PRODUCER_EPOCH (KIP-588). Source: Kafka's `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, each_when_written, items_of, once
from odradek.broker.coordinator.internal_topics import InternalTopics
from odradek.broker.coordinator.java_hash import partition_for
from odradek.broker.coordinator.transaction.coordinator import NewProducerId, TransactionCoordinator
from odradek.broker.coordinator.transaction.markers import Marker
from odradek.broker.coordinator.transaction.records import partitions_by_topic
from odradek.broker.coordinator.transaction.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
)
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, MetadataCache
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

PARTITION_BYTES = 4
"""The size of a transaction's partition in a response."""
NO_TOPICS: list[Any] = []
"""The topics of every transaction that cannot be described, shared by all responses."""
VERIFYING_VERSION = 4
"""The first version of AddPartitionsToTxn that is for brokers."""
FIRST_INIT_WITH_FENCED = 4
FIRST_WITH_FENCED = 2
"""The first versions that know PRODUCER_FENCED: of InitProducerId, and of the other APIs."""

Start = Callable[[Callable[[Any], None]], object]


def answered(start: Start, respond: Callable[[Any], Any]) -> Any:
    """Calls `start` with a callback for the outcome, now or later. `respond` turns the outcome into the response."""
    pending = PendingResponse()

    def settle(outcome: Any) -> None:
        pending.complete(respond(outcome))

    start(settle)
    return pending.result() if pending.settled else pending


def _code(error: ProtocolError | None, api_version: int, first_with_fenced: int = FIRST_WITH_FENCED) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    if error.code is ErrorCode.PRODUCER_FENCED and api_version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


class TransactionHandlers:
    """InitProducerId and the requests of transactions (keys 22, 24 to 27, 65 and 66)."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        metadata: MetadataCache,
        internal_topics: InternalTopics,
        new_producer_id: NewProducerId,
        max_response_bytes: int,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._internal_topics = internal_topics
        self._new_producer_id = new_producer_id
        self._max_response_bytes = max_response_bytes

    def init_producer_id(self, request: InitProducerIdRequest, context: RequestContext) -> Any:
        """Without a transactional id: returns a new producer id with epoch 0. With one: see the coordinator."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch must be sent together")
        transactional_id = request.transactional_id
        if transactional_id is None:
            return self._new_producer()
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        coordinator = self._coordinator

        def respond(outcome: ProducerIdAndEpoch | ProtocolError) -> InitProducerIdResponse:
            if isinstance(outcome, ProtocolError):
                code = _code(outcome, context.api_version, FIRST_INIT_WITH_FENCED)
                return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
            return InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)

        return answered(
            lambda settle: coordinator.init_producer_id(
                transactional_id, request.transaction_timeout_ms, expected, settle
            ),
            respond,
        )

    def _new_producer(self) -> PendingResponse:
        pending = PendingResponse()

        def use(found: int | ProtocolError) -> None:
            if isinstance(found, ProtocolError):
                pending.fail(found)
            else:
                pending.complete(InitProducerIdResponse(producer_id=found, producer_epoch=0))

        self._new_producer_id(use)
        return pending

    def add_partitions_to_txn(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
        """Adds all partitions or none. If one does not exist, the others return OPERATION_NOT_ATTEMPTED.

        From version 4 on the request is another broker's, which only verifies (KIP-890).
        """
        if context.api_version >= VERIFYING_VERSION:
            return self._verify_partitions(request)
        asked = [
            TopicPartition(topic.name, partition)
            for topic in request.v3_and_below_topics
            for partition in topic.partitions
        ]
        contains = self._metadata.contains
        if not all(map(contains, asked)):
            return _added(
                request,
                lambda key: (
                    ErrorCode.OPERATION_NOT_ATTEMPTED if contains(key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ),
            )
        producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        coordinator = self._coordinator

        def respond(error: ProtocolError | None) -> AddPartitionsToTxnResponse:
            code = _code(error, context.api_version)
            return _added(request, lambda _: code)

        return answered(
            lambda settle: coordinator.add_partitions(
                request.v3_and_below_transactional_id, producer, frozenset(asked), settle
            ),
            respond,
        )

    def _verify_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Returns, for each transaction and partition, whether the producer may write there now."""
        if not all(transaction.verify_only for transaction in request.transactions):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A broker can verify partitions, but not add any")
        is_open = self._coordinator.is_open_transaction

        def verified(transaction: _Verified) -> _VerifiedResult:
            name, producer_id, epoch = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
            results = _topic_results(transaction.topics, lambda key: is_open(name, producer_id, epoch, key))
            return _VerifiedResult(transactional_id=name, topic_results=results)

        return AddPartitionsToTxnResponse(results_by_transaction=[verified(each) for each in request.transactions])

    def add_offsets_to_txn(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Any:
        """Adds the group's partition of `__consumer_offsets` to the transaction."""
        partition = partition_for(request.group_id, self._internal_topics.partition_count(GROUP_TOPIC))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return answered(
            lambda settle: self._coordinator.add_partitions(
                request.transactional_id, producer, {TopicPartition(GROUP_TOPIC, partition)}, settle
            ),
            lambda error: AddOffsetsToTxnResponse(error_code=_code(error, context.api_version)),
        )

    def end_txn(self, request: EndTxnRequest, context: RequestContext) -> Any:
        """Responds when the commit or abort is decided; the markers follow."""
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        coordinator = self._coordinator
        return answered(
            lambda settle: coordinator.end(request.transactional_id, producer, request.committed, settle),
            lambda error: EndTxnResponse(error_code=_code(error, context.api_version)),
        )

    def write_txn_markers(self, request: WriteTxnMarkersRequest, context: RequestContext) -> Any:
        """Writes the markers of another coordinator, or of an administrator, to the partitions that this broker leads.

        Responds, per producer id, when all of them have been written or have failed.
        """
        if any(marker.producer_id < 0 or marker.producer_epoch < 0 for marker in request.markers):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A marker requires a producer id and its epoch")
        codes: MarkerCodes = {marker.producer_id: {} for marker in request.markers}
        waiting = sum(len(_partitions(marker)) for marker in request.markers)
        if waiting == 0:
            return _markers_response(codes)
        pending = PendingResponse()

        def written(producer_id: int, key: TopicPartition, code: ErrorCode) -> None:
            nonlocal waiting
            codes[producer_id][key] = code
            waiting -= 1
            if waiting == 0:
                pending.complete(_markers_response(codes))

        write = self._coordinator.own_logs.write
        for marker in request.markers:
            wanted = Marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                tuple(_partitions(marker)),
            )
            write(wanted, partial(written, marker.producer_id))
        return pending.result() if pending.settled else pending

    def describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> Steps[DescribeTransactionsResponse]:
        """Describes each transaction once, even if named twice. Each is described as of the step that looks it up."""
        states = []
        pace, size = Pace(), AnswerSize(self._max_response_bytes)
        transactional_ids = yield from once(request.transactional_ids)
        for transactional_id in transactional_ids:
            described = self._described(transactional_id)
            partitions = sum(len(topic.partitions) for topic in described.topics)
            size.add(PARTITION_BYTES * partitions)
            states.append(described)
            if pace.step_ends(items_of(transactional_id) + partitions):
                yield
        return DescribeTransactionsResponse(transaction_states=states)

    def _described(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        try:
            transaction = self._coordinator.describe(transactional_id)
        except ProtocolError as error:
            return DescribeTransactionsResponse.TransactionState(
                error_code=error.code, transactional_id=transactional_id, topics=NO_TOPICS
            )
        return DescribeTransactionsResponse.TransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.label,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                DescribeTransactionsResponse.TopicData(topic=topic, partitions=numbers)
                for topic, numbers in partitions_by_topic(transaction.partitions).items()
            ],
        )

    def list_transactions(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> Steps[ListTransactionsResponse]:
        """Lists the transactions that this broker coordinates, filtered by state, producer id and duration."""
        found = self._coordinator.listing(request.state_filters, request.producer_id_filters, request.duration_filter)
        rows = yield from each_in_steps(
            found.transactions,
            lambda transaction: ListTransactionsResponse.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            ),
        )
        return ListTransactionsResponse(unknown_state_filters=found.unknown_states, transaction_states=rows)


# --- AddPartitionsToTxn ---------------------------------------------------------------------------------------------

_Verified = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_VerifiedResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_AddedTopic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_AddedPartition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def partitions_to_add_or_verify(request: AddPartitionsToTxnRequest) -> Iterator[int]:
    """Yields the number of partitions of each topic."""
    yield from (len(topic.partitions) for topic in request.v3_and_below_topics)
    yield from (len(topic.partitions) for transaction in request.transactions for topic in transaction.topics)


def add_partitions_error(request: AddPartitionsToTxnRequest, code: ErrorCode, message: str | None) -> Steps[Message]:
    """Returns the error for every partition; from version 4 on also for the request."""

    def refused(number: int) -> AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult:
        return _AddedPartition(partition_index=number, partition_error_code=code)

    def refused_topic(topic: AddPartitionsToTxnRequest.AddPartitionsToTxnTopic) -> _AddedTopic:
        return _AddedTopic(name=topic.name, results_by_partition=each_when_written(topic.partitions, refused))

    yield from ()
    topics = each_when_written(request.v3_and_below_topics, refused_topic)
    return AddPartitionsToTxnResponse(error_code=code, results_by_topic_v3_and_below=topics)


def _added(
    request: AddPartitionsToTxnRequest, code_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResponse:
    results = _topic_results(request.v3_and_below_topics, code_of)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _topic_results(
    topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[_AddedTopic]:
    return [
        _AddedTopic(
            name=topic.name,
            results_by_partition=[
                _AddedPartition(
                    partition_index=partition, partition_error_code=code_of(TopicPartition(topic.name, partition))
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


# --- WriteTxnMarkers ------------------------------------------------------------------------------------------------

_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkedTopic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_MarkedPartition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

MarkerCodes = dict[int, dict[TopicPartition, ErrorCode]]
"""Error codes by producer id and partition."""


def write_txn_markers_error(
    request: WriteTxnMarkersRequest, code: ErrorCode, message: str | None
) -> Steps[WriteTxnMarkersResponse]:
    """Returns the error for every partition of every marker."""

    def refused(number: int) -> _MarkedPartition:
        return _MarkedPartition(partition_index=number, error_code=code)

    def refused_topic(topic: WriteTxnMarkersRequest.WritableTxnMarkerTopic) -> _MarkedTopic:
        return _MarkedTopic(name=topic.name, partitions=each_when_written(topic.partition_indexes, refused))

    def refused_marker(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> _Marked:
        return _Marked(producer_id=marker.producer_id, topics=each_when_written(marker.topics, refused_topic))

    yield from ()
    return WriteTxnMarkersResponse(markers=each_when_written(request.markers, refused_marker))


def partitions_of_markers(request: WriteTxnMarkersRequest) -> Iterator[int]:
    """Returns how many partitions the request names, by marker and topic."""
    for marker in request.markers:
        yield from (len(topic.partition_indexes) for topic in marker.topics) if marker.topics else (0,)


def _partitions(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]


def _markers_response(codes: MarkerCodes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _Marked(
                producer_id=producer_id,
                topics=[
                    _MarkedTopic(
                        name=name,
                        partitions=[
                            _MarkedPartition(partition_index=number, error_code=found[TopicPartition(name, number)])
                            for number in numbers
                        ],
                    )
                    for name, numbers in partitions_by_topic(found).items()
                ],
            )
            for producer_id, found in codes.items()
        ]
    )

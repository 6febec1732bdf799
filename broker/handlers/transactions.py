"""InitProducerId (key 22) and transactions (keys 25 to 27, 65 and 66). AddPartitionsToTxn: see add_partitions.py.

Turns the coordinator's outcomes into responses. Source: Kafka's `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, each_when_written, items_of, once
from odradek.broker.coordinator.runtime.shard import Runtime
from odradek.broker.coordinator.transaction.coordinator import NewProducerId, TransactionCoordinator
from odradek.broker.coordinator.transaction.marker_writing import Marker
from odradek.broker.coordinator.transaction.records import partitions_by_topic
from odradek.broker.coordinator.transaction.transaction import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
)
from odradek.broker.handlers.access import ASKS_ON, LEFT_OUT, Access, AuthorizationDenied, Check
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.handlers.transaction_outcomes import answered, code_for
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC
from odradek.broker.regular_expressions import compiled, items_of_match, matches
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import AclOperation, AclResourceType

PARTITION_BYTES = 4
"""The size of a transaction's partition in a response."""
NO_TOPICS: list[Any] = []
"""The topics of every transaction that cannot be described, shared by all responses."""
FIRST_INIT_WITH_FENCED = 4
FIRST_END_WITH_EPOCHS = 5
TRANSACTIONAL_PRODUCER = Check(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "transactional_id")
IDEMPOTENT_PRODUCER = Check(
    AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, "without one", ASKS_ON, is_audited=False
)
WRITES_ANY_TOPIC = Check(AclOperation.WRITE, AclResourceType.TOPIC, "or else, on any topic")
TOPIC_OF_TRANSACTION = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "those in it", LEFT_OUT, is_audited=False)
LISTED_TRANSACTION = Check(
    AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, "each transaction", LEFT_OUT, is_audited=False
)
"""The first version of InitProducerId that knows PRODUCER_FENCED."""


class TransactionHandlers:
    """InitProducerId and the requests of transactions (keys 22, 25 to 27, 65 and 66)."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        group_runtime: Runtime,
        new_producer_id: NewProducerId,
        access: Access,
        max_response_bytes: int,
    ) -> None:
        self._coordinator = coordinator
        self._group_runtime = group_runtime
        self._new_producer_id = new_producer_id
        self._access = access
        self._max_response_bytes = max_response_bytes

    def init_producer_id(self, request: InitProducerIdRequest, context: RequestContext) -> Any:
        """Without a transactional id: returns a new producer id with epoch 0. With one: see the coordinator."""
        self._check_producer(request.transactional_id, context)
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
                code = code_for(outcome, context.api_version, FIRST_INIT_WITH_FENCED)
                return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
            return InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)

        return answered(
            lambda settle: coordinator.init_producer_id(
                transactional_id, request.transaction_timeout_ms, expected, settle
            ),
            respond,
        )

    def _check_producer(self, transactional_id: str | None, context: RequestContext) -> None:
        """Raises AuthorizationDenied. Who may write to any topic may write idempotently (KIP-679)."""
        access = self._access
        if transactional_id is not None:
            access.demand(context, TRANSACTIONAL_PRODUCER, transactional_id)
        elif not (access.allows(context, IDEMPOTENT_PRODUCER) or access.allows_some(context, WRITES_ANY_TOPIC)):
            raise AuthorizationDenied(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def _new_producer(self) -> PendingResponse:
        pending = PendingResponse()

        def use(found: int | ProtocolError) -> None:
            if isinstance(found, ProtocolError):
                pending.fail(found)
            else:
                pending.complete(InitProducerIdResponse(producer_id=found, producer_epoch=0))

        self._new_producer_id(use)
        return pending

    def add_offsets_to_txn(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Any:
        """Adds the group's partition of `__consumer_offsets` to the transaction."""
        partition = self._group_runtime.partition_for(request.group_id)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return answered(
            lambda settle: self._coordinator.add_partitions(
                request.transactional_id, producer, {TopicPartition(GROUP_TOPIC, partition)}, settle
            ),
            lambda error: AddOffsetsToTxnResponse(error_code=code_for(error, context.api_version)),
        )

    def end_txn(self, request: EndTxnRequest, context: RequestContext) -> Any:
        """Responds when the commit or abort is decided; the markers follow. From version 5 on with the producer of the
        next transaction.
        """
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        coordinator = self._coordinator
        version = EPOCH_PER_TRANSACTION if context.api_version >= FIRST_END_WITH_EPOCHS else 0

        def respond(outcome: ProducerIdAndEpoch | ProtocolError) -> EndTxnResponse:
            if isinstance(outcome, ProtocolError):
                return EndTxnResponse(error_code=code_for(outcome, context.api_version))
            return EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)

        return answered(
            lambda settle: coordinator.end(request.transactional_id, producer, request.committed, settle, version),
            respond,
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
                marker.transaction_version,
            )
            write(wanted, partial(written, marker.producer_id))
        return pending.result() if pending.settled else pending

    def describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> Steps[DescribeTransactionsResponse]:
        """Describes each transaction once, even if named twice. Each is described as of the step that looks it up.

        Leaves out topics that the client may not describe.
        """
        states = []
        pace, size = Pace(), AnswerSize(self._max_response_bytes)
        transactional_ids = yield from once(request.transactional_ids)
        for transactional_id in transactional_ids:
            described = self._described(transactional_id)
            if self._access.decides and described.topics:
                described.topics = yield from self._known(described.topics, context)
            partitions = sum(len(topic.partitions) for topic in described.topics)
            size.add(PARTITION_BYTES * partitions)
            states.append(described)
            if pace.step_ends(items_of(transactional_id) + partitions):
                yield
        return DescribeTransactionsResponse(transaction_states=states)

    def _known(self, topics: list[Any], context: RequestContext) -> Steps[list[Any]]:
        names = [topic.topic for topic in topics]
        known = yield from self._access.allowed(context, TOPIC_OF_TRANSACTION, names)
        return [topic for topic in topics if topic.topic in known]

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
        """Lists the transactions that this broker coordinates and the client may describe, filtered by state, producer
        id, duration and a pattern of the whole transactional id (KIP-1152). Raises INVALID_REGULAR_EXPRESSION.
        """
        found = self._coordinator.listing(request.state_filters, request.producer_id_filters, request.duration_filter)
        transactions = found.transactions
        if request.transactional_id_pattern:
            transactions = yield from _matching(request.transactional_id_pattern, transactions)
        names = [transaction.transactional_id for transaction in transactions]
        known = yield from self._access.allowed(context, LISTED_TRANSACTION, names)
        rows = yield from each_in_steps(
            [transaction for transaction in transactions if transaction.transactional_id in known],
            lambda transaction: ListTransactionsResponse.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            ),
        )
        return ListTransactionsResponse(unknown_state_filters=found.unknown_states, transaction_states=rows)


def _matching(pattern: str, transactions: list[Transaction]) -> Steps[list[Transaction]]:
    expression = compiled(pattern)
    pace = Pace()
    found = []
    for transaction in transactions:
        if matches(expression, transaction.transactional_id):
            found.append(transaction)
        if pace.step_ends(items_of_match(expression, transaction.transactional_id)):
            yield
    return found


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

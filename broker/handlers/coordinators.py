"""FindCoordinator and InitProducerId: who coordinates, and producer ids.

This node coordinates every group and every transaction. Source: Kafka's `KafkaApis`,
`TransactionCoordinator.handleInitProducerId`.
"""

from __future__ import annotations

from enum import IntEnum

from broker.handlers.request_context import RequestContext
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse

FIRST_BATCHED_VERSION = 4
NO_NODE = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class CoordinatorType(IntEnum):
    """Kafka's `FindCoordinatorRequest.CoordinatorType`."""

    GROUP = 0
    TRANSACTION = 1


def handle_find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """This node for groups and transactions; INVALID_REQUEST for other types. From v4 on one answer per key."""
    if context.api_version >= FIRST_BATCHED_VERSION:
        found = [_coordinator(request.key_type, key, context) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ErrorCode.NONE.name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(key_type: int, key: str, context: RequestContext) -> FindCoordinatorResponse.Coordinator:
    result = FindCoordinatorResponse.Coordinator(key=key, node_id=NO_NODE, host="", port=-1)
    if key_type not in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"There is no coordinator of type {key_type}"
        return result
    metadata = context.broker.metadata
    endpoint = metadata.brokers[metadata.broker_id].endpoint(context.listener.name)
    if endpoint is None:
        result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        result.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE.message
        return result
    result.node_id, result.host, result.port = metadata.broker_id, endpoint.host, endpoint.port
    return result


async def handle_init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """A new producer id with epoch 0 for a producer without transactional id.

    With one: INVALID_REQUEST if it is empty, INVALID_TRANSACTION_TIMEOUT, else COORDINATOR_NOT_AVAILABLE as long as
    no coordinator of transactions runs.
    """
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "A producer id needs its epoch, and an epoch its producer id")
    if request.transactional_id is not None:
        _refuse_transactional(request.transactional_id, request.transaction_timeout_ms, context)
    producer_id = await context.broker.producer_ids.next()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refuse_transactional(transactional_id: str, timeout_ms: int, context: RequestContext) -> None:
    if not transactional_id:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The transactional id is empty")
    if not 0 < timeout_ms <= int(context.broker.config["transaction.max.timeout.ms"]):
        message = f"A transaction cannot have {timeout_ms} ms"
        raise ProtocolError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
    message = "This release coordinates no transactions"
    raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

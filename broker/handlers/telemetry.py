"""GetTelemetrySubscriptions and PushTelemetry (keys 71 and 72): the clients' own metrics (KIP-714).

Clients find both only if odradek.client.metrics.enable is true, as they find them in Kafka only with a plugin. No
authorizer is asked.

Source: Kafka's `ClientMetricsManager`.
"""

from __future__ import annotations

from uuid import UUID

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.turns import Turns
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.telemetry.client_instances import ClientInstance
from odradek.broker.telemetry.client_telemetry import ClientTelemetry
from odradek.protocol.batch_header import Compression
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

NO_ID = UUID(int=0)
RESERVED_IDS = (NO_ID, UUID(int=1))
ACCEPTED_CODECS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""In the order of preference. A push that is not compressed is accepted, too."""
CODECS = frozenset(Compression)


class TelemetryHandlers:
    """GetTelemetrySubscriptions and PushTelemetry (keys 71 and 72)."""

    def __init__(self, telemetry: ClientTelemetry, turns: Turns) -> None:
        self._telemetry = telemetry
        self._turns = turns

    def get_telemetry_subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, context: RequestContext
    ) -> Steps[GetTelemetrySubscriptionsResponse]:
        """Raises THROTTLING_QUOTA_EXCEEDED if the client asks too often."""
        instances = self._telemetry.instances
        client_instance_id = request.client_instance_id
        if client_instance_id == NO_ID:
            client_instance_id = instances.new_id()
        instance = yield from instances.heard(client_instance_id, context)
        if not instance.may_get(context.received_ms):
            raise self._too_early(instance)
        instance.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(ACCEPTED_CODECS),
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._telemetry.most_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    async def push_telemetry(self, request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
        """Raises INVALID_REQUEST for an id that no client has, and what `_check` and the decoding of metrics raise."""
        client_instance_id = request.client_instance_id
        if client_instance_id in RESERVED_IDS:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{client_instance_id} is not the id of a client instance")
        instance = await self._turns.take(self._telemetry.instances.heard(client_instance_id, context))
        try:
            try:
                self._check(request, instance, context.received_ms)
            finally:
                instance.is_terminating = request.terminating
            if request.metrics:
                await self._telemetry.export(instance, request.compression_type, request.metrics)
        except ProtocolError as error:
            instance.last_error = error.code
            raise
        instance.last_error = ErrorCode.NONE
        return PushTelemetryResponse()

    def _check(self, request: PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> None:
        """Raises INVALID_REQUEST after the last push, THROTTLING_QUOTA_EXCEEDED before the interval has passed,
        UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE and TELEMETRY_TOO_LARGE.
        """
        if instance.is_terminating:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "The client has pushed its last metrics before")
        if not instance.may_push(now_ms) and not request.terminating:
            raise self._too_early(instance)
        if request.subscription_id != instance.subscription_id:
            self._telemetry.counts.unknown_subscriptions += 1
            raise ProtocolError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in CODECS:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression type {request.compression_type}"
            )
        if len(request.metrics) > self._telemetry.most_bytes:
            raise ProtocolError(
                ErrorCode.TELEMETRY_TOO_LARGE, f"{len(request.metrics)} bytes are more than telemetry.max.bytes"
            )

    def _too_early(self, instance: ClientInstance) -> ProtocolError:
        self._telemetry.counts.throttled += 1
        return ProtocolError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"The client has {instance.wanted.interval_ms} ms between its requests"
        )

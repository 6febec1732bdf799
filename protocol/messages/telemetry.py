"""GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72): the clients' own metrics (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, array, bool_, bytes_, int8, int16, int32, message, string, uuid


@message(api_key=71, kind="request", versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest(Message):
    """The metrics to push; the zero id asks for an id."""

    client_instance_id: UUID = uuid()


@message(api_key=71, kind="response", versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse(Message):
    """The subscription of this instance: metrics, interval in ms, and the most bytes of a push."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = bool_()
    requested_metrics: list[str] = array(string)


@message(api_key=72, kind="request", versions=(0, 0), flexible=0)
class PushTelemetryRequest(Message):
    """A client's metrics (OTLP), compressed; `terminating`: the last ones."""

    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = bool_()
    compression_type: int = int8()
    metrics: bytes = bytes_()


@message(api_key=72, kind="response", versions=(0, 0), flexible=0)
class PushTelemetryResponse(Message):
    """Whether the metrics were accepted."""

    throttle_time_ms: int = int32()
    error_code: int = int16()

"""The rows of the API table that only a broker with odradek.client.metrics.enable=true has."""

from __future__ import annotations

from odradek.broker.handlers.api_row import ApiRow, ApiTable, api_row
from odradek.broker.handlers.authorization import NOTHING_ASKED
from odradek.broker.handlers.error_responses import top_level
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse


def telemetry_rows() -> list[ApiRow]:
    return [
        api_row(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            (0, 0),
            lambda handlers: handlers.telemetry.get_telemetry_subscriptions,
            top_level(GetTelemetrySubscriptionsResponse),
            authorization=NOTHING_ASKED,
        ),
        api_row(
            ApiKey.PUSH_TELEMETRY,
            (0, 0),
            lambda handlers: handlers.telemetry.push_telemetry,
            top_level(PushTelemetryResponse),
            authorization=NOTHING_ASKED,
        ),
    ]


def with_telemetry(table: ApiTable) -> ApiTable:
    """Returns the table with these rows, too."""
    return ApiTable.of([*table.rows(), *telemetry_rows()])

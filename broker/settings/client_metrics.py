"""The settings of a subscription to the metrics of clients (KIP-714): which metrics, how often, of which clients.

Source: Kafka's `ClientMetricsConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.regular_expressions import MOST_COSTLY_PARTS, compiled, costly_parts
from odradek.broker.settings import CLIENT_METRICS, ConfigError, parse_value
from odradek.protocol.errors import ErrorCode, ProtocolError

INTERVALS_MS = range(100, 3_600_001)
MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a pattern may concern."""


def check_client_metrics(texts: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST, INVALID_CONFIG unless a subscription may have these settings."""
    for name, text in texts.items():
        if name not in CLIENT_METRICS:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            value = parse_value(CLIENT_METRICS[name], text)
        except ConfigError as error:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if name == "interval.ms" and value not in INTERVALS_MS:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"interval.ms={value} is not between {INTERVALS_MS[0]} and {INTERVALS_MS[-1]}",
            )
        if name == "match":
            if costly_parts(text) > MOST_COSTLY_PARTS:
                raise ProtocolError(
                    ErrorCode.INVALID_CONFIG,
                    f"The patterns have more than {MOST_COSTLY_PARTS} classes of Unicode and counted repetitions.",
                )
            for pattern in value if isinstance(value, list) else ():
                _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    """A pattern is NAME=EXPRESSION, an expression in RE2's syntax for the whole value."""
    name, equals, expression = pattern.partition("=")
    if name.strip() not in MATCHED or not equals or not expression or "=" in expression:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    try:
        compiled(expression.strip())
    except ProtocolError as error:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}: {error.error_message}"
        ) from error

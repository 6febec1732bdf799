"""What settings belong to, as the requests that describe and change settings name it."""

from __future__ import annotations

from odradek.broker.logging.structured_logging import Loggers, current_loggers
from odradek.protocol.errors import ErrorCode, ProtocolError


def check_is_this_broker(name: str, expected: int) -> None:
    """Raises INVALID_REQUEST unless `name` is `expected`, this broker's number."""
    try:
        broker_id = int(name)
    except ValueError:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"A broker is named by its number, not '{name}'") from None
    if broker_id != expected:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Ask broker {broker_id} itself: this is broker {expected}")


def loggers() -> Loggers:
    """The loggers of this process. Raises INVALID_REQUEST where they are not the broker's."""
    found = current_loggers()
    if found is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The program that this broker runs in keeps its own log levels")
    return found


def no_such_type(resource_type: int) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no settings here")

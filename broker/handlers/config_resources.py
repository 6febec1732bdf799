"""The resources of the requests that describe and change settings."""

from __future__ import annotations

from odradek.broker.logging.structured_logging import Loggers, current_loggers
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import AclResourceType, ConfigResourceType


def check_is_this_broker(name: str, expected: int) -> None:
    """Raises INVALID_REQUEST unless `name` is `expected`, the id of this broker."""
    try:
        broker_id = int(name)
    except ValueError:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"A broker is named by its id, not '{name}'") from None
    if broker_id != expected:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Send this to broker {broker_id}: this is broker {expected}")


def loggers() -> Loggers:
    """Returns the loggers of this process. Raises INVALID_REQUEST if the broker does not control logging."""
    found = current_loggers()
    if found is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The host program of this broker controls its log levels")
    return found


def resource_with_settings(config_type: int, name: str) -> tuple[AclResourceType, str] | None:
    """Returns the resource that ACLs protect; None for a type that has no settings here."""
    if config_type == ConfigResourceType.TOPIC:
        return AclResourceType.TOPIC, name
    if config_type == ConfigResourceType.GROUP:
        return AclResourceType.GROUP, name
    if config_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS):
        return AclResourceType.CLUSTER, CLUSTER_NAME
    return None


def check_has_name(resource_type: ConfigResourceType, name: str) -> None:
    """Raises INVALID_REQUEST for a group, or a subscription to client metrics, without a name."""
    if not name:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"A resource of the type {resource_type.name} needs a name")


def no_such_type(resource_type: int) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} has no settings here")

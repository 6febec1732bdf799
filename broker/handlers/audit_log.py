"""The audit log: what the authorizer has decided about clients' requests.

A denial is logged at level INFO, what is allowed at level DEBUG, both by the logger `broker.authorizer`: Kafka's
`kafka.authorizer.logger`. Clients that are denied everything in a loop must not fill the disk: the lines about denials
have a rate (logging/line_rate.py), and the next line says how many are missing.
"""

from __future__ import annotations

from typing import Any

import structlog

from odradek.broker.logging.line_rate import LineRate
from odradek.broker.logging.structured_logging import FilteredLogger
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.timer import Clock

DEBUG = 10


class AuditLog:
    """Writes to the log as it is configured when this is made."""

    def __init__(self, clock: Clock) -> None:
        self._rate = LineRate(clock)
        self._log: Any = structlog.get_logger("broker.authorizer").bind()
        self._filtered = self._log if isinstance(self._log, FilteredLogger) else None
        """None if the host program of this broker decides what is logged."""

    def decided(
        self,
        context: RequestContext,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        allowed: bool,
        audited: bool,
    ) -> None:
        """Logs a decision. `name`: empty for any resource of the type. `audited`: log it also if it is a denial."""
        log = self._log
        if allowed:
            if self._filtered is None or self._filtered.is_enabled_for(DEBUG):
                log.debug("operation allowed", **_details(context, host, operation, resource_type, name))
        elif audited:
            details = _details(context, host, operation, resource_type, name)
            if self._rate.admits(details):
                log.info("operation denied", **details)


def _details(
    context: RequestContext, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
) -> dict[str, object]:
    return {
        "principal": context.principal,
        "host": host,
        "operation": operation.name,
        "resource_type": resource_type.name,
        "resource": name,
        "api": ApiKey(context.api_key).name,
        "client_id": context.client_id,
    }

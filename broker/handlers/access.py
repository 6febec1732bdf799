"""What clients may do: handlers ask here, with the context of the request and a check of the API's row.

    (A) Without an authorizer everything is allowed, which is also the answer to clients that ask for the operations on
        a resource (KIP-430).
    (B) With one, every decision goes into the audit log (audit_log.py), except that a check which merely filters what a
        client sees is no denial.
    (C) A decision holds for the request that asked: handlers ask once for each resource of a request.

Source: Kafka's `AuthHelper`, `AclEntry.supportedOperations`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, Steps, items_of
from odradek.broker.handlers.audit_log import AuditLog
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME, Authorizer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import AclOperation, AclResourceType

ITEMS_PER_DECISION = 2
"""How many items of a step a decision counts as."""
DENIALS = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error of a denial by the type of the resource."""
NOT_ASKED = -(2**31)
"""The value in the response if the request did not ask for the operations on a resource (KIP-430)."""
ON_RESOURCE = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
"""The operations that each type of resource supports."""
ASKS_ON = "asks the next"
"""What a denial leads to if another operation is enough."""
LEFT_OUT = "left out"
"""What becomes of what a client may not see."""


class Check(NamedTuple):
    """One thing that the authorizer is asked: a row of the API table lists all of its API, and handlers ask by them.

    `names`: where the request has the resources' names, or when the check arises. `denied`: where the response has the
    denial. `is_audited`: whether a denial is one, see (B).
    """

    operation: AclOperation
    resource_type: AclResourceType
    names: str = ""
    denied: str = "the response"
    is_audited: bool = True

    @property
    def as_filter(self) -> Check:
        """The same, for a request that names nothing and so is denied nothing."""
        return self._replace(is_audited=False)


CLUSTER_OPERATIONS = Check(AclOperation.DESCRIBE, AclResourceType.CLUSTER, "for its operations", "0 operations")


class AuthorizationDenied(ProtocolError):
    """The client may not do what the whole request asks for. The audit log has it already."""


class _Everything(Container[str]):
    def __contains__(self, item: object) -> bool:
        return True


EVERYTHING = _Everything()


class Access:
    """Without an authorizer (A), and the base of the other one. `decides`: whether there is an authorizer."""

    decides = False

    def allows(self, context: RequestContext, check: Check, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may perform the operation on one resource."""
        return True

    def allows_some(self, context: RequestContext, check: Check) -> bool:
        """Whether the client may perform the operation on at least one resource of the type."""
        return True

    def allowed(self, context: RequestContext, check: Check, names: Iterable[str]) -> Steps[Container[str]]:
        """Returns the names of those resources on which the client may perform the operation."""
        yield from ()
        return EVERYTHING

    def demand(self, context: RequestContext, check: Check, name: str) -> None:
        """Raises AuthorizationDenied if the client may not perform the operation on one resource."""
        if not self.allows(context, check, name):
            raise AuthorizationDenied(DENIALS[check.resource_type], DENIALS[check.resource_type].message)

    def demand_on_cluster(self, context: RequestContext, check: Check) -> None:
        """Raises AuthorizationDenied, which names the client, as Kafka does for requests between brokers."""
        if not self.allows(context, check):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            raise AuthorizationDenied(code, denial_of(context, check.operation, code))

    def operations(self, context: RequestContext, resource_type: AclResourceType, name: str) -> int:
        """Returns all operations that the client may perform on one resource, as a bit field (KIP-430)."""
        return bit_field(*ON_RESOURCE[resource_type])

    def operations_on_cluster(self, context: RequestContext) -> int:
        """As `operations`, for the cluster: none for a client that may not describe it."""
        if not self.allows(context, CLUSTER_OPERATIONS):
            return 0
        return self.operations(context, AclResourceType.CLUSTER, CLUSTER_NAME)


class DecidedAccess(Access):
    """With an authorizer (B)."""

    decides = True

    def __init__(self, authorizer: Authorizer, audit_log: AuditLog) -> None:
        self._authorizer = authorizer
        self._audit_log = audit_log

    @property
    def changes(self) -> int:
        """Grows with every change of the ACLs."""
        return self._authorizer.changes

    def allows(self, context: RequestContext, check: Check, name: str = CLUSTER_NAME) -> bool:
        host, (operation, resource_type, _, _, audited) = context.java_host, check
        allowed = self._authorizer.allows(context.principal, host, operation, resource_type, name)
        self._audit_log.decided(context, host, operation, resource_type, name, allowed=allowed, audited=audited)
        return allowed

    def allows_some(self, context: RequestContext, check: Check) -> bool:
        host, (operation, resource_type, _, _, audited) = context.java_host, check
        allowed = self._authorizer.allows_some(context.principal, host, operation, resource_type)
        self._audit_log.decided(context, host, operation, resource_type, "", allowed=allowed, audited=audited)
        return allowed

    def allowed(self, context: RequestContext, check: Check, names: Iterable[str]) -> Steps[Container[str]]:
        """Decides once for each distinct name."""
        allowed: dict[str, bool] = {}
        pace = Pace()
        for name in names:
            cost = 1
            if name not in allowed:
                allowed[name] = self.allows(context, check, name)
                cost = ITEMS_PER_DECISION + items_of(name)
            if pace.step_ends(cost):
                yield
        return {name for name, is_allowed in allowed.items() if is_allowed}

    def operations(self, context: RequestContext, resource_type: AclResourceType, name: str) -> int:
        host = context.java_host
        allows = self._authorizer.allows
        return bit_field(
            *(
                operation
                for operation in ON_RESOURCE[resource_type]
                if allows(context.principal, host, operation, resource_type, name)
            )
        )


def bit_field(*operations: AclOperation) -> int:
    """Returns the operations as a bit field (KIP-430): bit n stands for Kafka's `AclOperation` n."""
    return sum(1 << operation for operation in operations)


def denial_of(context: RequestContext, operation: AclOperation, code: ErrorCode) -> str:
    """Returns a text that names the client."""
    api, host = ApiKey(context.api_key).name, context.java_host
    return f"{code.message} {context.principal} from host {host} needs {operation.name} for {api}."


def access_by(authorizer: Authorizer | None, audit_log: AuditLog) -> Access:
    """Returns what the handlers of a broker ask."""
    return Access() if authorizer is None else DecidedAccess(authorizer, audit_log)


def brokers_by(authorizer: Authorizer | None, broker_listeners: Container[str]) -> Callable[[ConnectionInfo], bool]:
    """Returns whether a connection may be another broker's. An authorizer knows which principals may act as brokers;
    without one, it is the listener that counts. `broker_listeners`: see `Dispatcher`.
    """
    if authorizer is None:
        return lambda connection: connection.listener.name in broker_listeners
    allows = authorizer.allows

    def may_act_as_broker(connection: ConnectionInfo) -> bool:
        host = connection.java_host
        return allows(connection.principal, host, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)

    return may_act_as_broker

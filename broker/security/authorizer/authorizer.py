"""What the broker asks an authorizer.

Source: Kafka's `Authorizer` (KIP-504).
"""

from __future__ import annotations

from typing import Protocol

from odradek.protocol.wire_codes import AclOperation, AclResourceType

CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER; Kafka's `Resource.CLUSTER_NAME`."""


class Authorizer(Protocol):
    """Decides at once, from what this broker knows. It logs nothing: callers know the request, for the audit log."""

    changes: int
    """Grows with every change of the ACLs: a decision holds until then."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Whether the principal may perform the operation on one resource.

        `principal`: TYPE:NAME. `host`: the client's address, as Java writes it.
        """
        ...

    def allows_some(self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether the principal may perform the operation on at least one resource of this type;
        Kafka's `authorizeByResourceType`.
        """
        ...

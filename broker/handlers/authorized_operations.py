"""Bit fields of the operations that a client is authorized for (KIP-430): bit n stands for Kafka's `AclOperation` n.

Source: Kafka's `AclEntry.supportedOperations`.
"""

from __future__ import annotations

from odradek.protocol.wire_codes import AclOperation, AclResourceType

NOT_ASKED = -(2**31)
"""The value in the response if the request did not ask for the operations."""


def bit_field(*operations: AclOperation) -> int:
    """Returns the operations as a bit field."""
    return sum(1 << operation for operation in operations)


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
    AclResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
}
"""The operations that each type of resource supports."""

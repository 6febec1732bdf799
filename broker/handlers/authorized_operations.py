"""The bit fields in which a client hears what it may do (KIP-430): bit n stands for Kafka's `AclOperation` n.

Without an authorizer everybody may do everything that the resource knows. Source: Kafka's
`AclEntry.supportedOperations`.
"""

from __future__ import annotations

from odradek.protocol.wire_codes import AclOperation

NOT_ASKED = -(2**31)
"""What stands in a response whose request did not ask."""


def bit_field(*operations: AclOperation) -> int:
    """The operations as one number."""
    return sum(1 << operation for operation in operations)


ALL_ON_TOPIC = bit_field(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
ALL_ON_CLUSTER = bit_field(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
ALL_ON_GROUP = bit_field(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE)

"""ACLs as tests write them: who may, or may not, do what.

    acls=[
        allow("alice", "WRITE", "CREATE", topic="orders"),
        allow("bob", "READ", topic="orders-", prefixed=True),
        allow("bob", "READ", group="*"),
        deny("*", "DELETE", topic="*"),
    ]

Operations are Kafka's. As there, a denial comes before what is allowed, and READ, WRITE, DELETE and ALTER of a resource
allow to describe it.
"""

from __future__ import annotations

from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.clients.admin.acls import Acl
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

Acls = tuple[Acl, ...]
ANY_HOST = "*"
OF_FILTERS = (AclOperation.UNKNOWN, AclOperation.ANY)


def allow(
    user: str,
    *operations: str,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    cluster: bool = False,
    prefixed: bool = False,
    host: str = ANY_HOST,
) -> Acls:
    """A user may do this, from a host. `*` is everybody, or everything; with `prefixed` the name is the beginning of
    names. Exactly one of `topic`, `group`, `transactional_id` and `cluster` is given. Raises ValueError.
    """
    resource = _resource(topic, group, transactional_id, cluster)
    return _acls(AclPermissionType.ALLOW, user, operations, resource, prefixed, host)


def deny(
    user: str,
    *operations: str,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    cluster: bool = False,
    prefixed: bool = False,
    host: str = ANY_HOST,
) -> Acls:
    """A user may not do this; arguments as for `allow`."""
    resource = _resource(topic, group, transactional_id, cluster)
    return _acls(AclPermissionType.DENY, user, operations, resource, prefixed, host)


def principal_of(user: str) -> str:
    """Returns the principal of a user."""
    return f"User:{user}"


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> tuple[AclResourceType, str]:
    given = {
        AclResourceType.TOPIC: topic,
        AclResourceType.GROUP: group,
        AclResourceType.TRANSACTIONAL_ID: transactional_id,
        AclResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    found = [(kind, name) for kind, name in given.items() if name is not None]
    if len(found) != 1:
        raise ValueError("an ACL is about one of topic, group, transactional_id and cluster")
    return found[0]


def _acls(
    permission: AclPermissionType,
    user: str,
    operations: tuple[str, ...],
    resource: tuple[AclResourceType, str],
    prefixed: bool,
    host: str,
) -> Acls:
    kind, name = resource
    pattern = AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL
    if not operations:
        raise ValueError("an ACL has at least one operation, such as READ")
    return tuple(
        Acl(kind, name, pattern, principal_of(user), host, _operation(text), permission) for text in operations
    )


def _operation(text: str) -> AclOperation:
    operation = AclOperation.__members__.get(text)
    if operation is None or operation in OF_FILTERS:
        known = [each.name for each in AclOperation if each not in OF_FILTERS]
        raise ValueError(f"operation {text!r} is not one of {', '.join(known)}")
    return operation

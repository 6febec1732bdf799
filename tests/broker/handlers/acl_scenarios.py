"""Requests of DescribeAcls, CreateAcls and DeleteAcls, right and wrong, one after another, and what brokers answer."""

from __future__ import annotations

from typing import Any

from odradek.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from odradek.protocol.schema import Message
from tests.wire.raw_client import raw_client

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
UNKNOWN, ANY, FUTURE = 0, 1, 99
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = range(2, 8)
MATCH, LITERAL, PREFIXED = 2, 3, 4
READ, WRITE, DESCRIBE, CLUSTER_ACTION = 3, 4, 8, 9
DENY, ALLOW = 2, 3
ERROR_TEXTS = ("Failed to create ACL", None)
"""Kafka gives no more reason in these; Odradek does."""


def acl(
    resource_type: int = TOPIC,
    name: str = "t",
    pattern_type: int = LITERAL,
    principal: str = "User:a",
    host: str = "*",
    operation: int = READ,
    permission: int = ALLOW,
) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def _with_code(name: str, value: int) -> CreateAclsRequest.AclCreation:
    made = acl()
    setattr(made, name, value)
    return made


def create(*acls: CreateAclsRequest.AclCreation) -> CreateAclsRequest:
    return CreateAclsRequest(creations=list(acls))


def _filter(**fields: Any) -> dict[str, Any]:
    everything = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return everything | fields


def describe(**fields: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**_filter(**fields))


def delete(*filters: dict[str, Any]) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**_filter(**each)) for each in filters])


CODES = ("resource_type", "resource_pattern_type", "operation", "permission_type")
FILTER_CODES = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
NAMES = [
    "a b$%",
    ".",
    "..",
    "a\0b",
    "a\x01b",
    "a\x7f",
    "\ud7ffx",
    "a\uf8ffb",
    "a\ufffdb",
    "é😀",
    'u"é',
    "x" * 300,
    "...",
]
STEPS: dict[str, tuple[Message, int]] = {
    "two ACLs": (create(acl(), acl(name="u", pattern_type=PREFIXED)), 3),
    "the same ACL twice": (create(acl(), acl()), 3),
    "no ACL": (create(), 3),
    "version 0": (create(acl()), 0),
    "version 1": (create(acl(name="v", pattern_type=PREFIXED)), 1),
    "a slash": (create(acl(GROUP, "a/b"), acl()), 3),
    "an empty name": (create(acl(name=""), acl(name="x")), 3),
    "another cluster": (create(acl(CLUSTER, "x"), acl(CLUSTER, ""), acl(CLUSTER, "*")), 3),
    "the cluster": (create(acl(CLUSTER, "kafka-cluster", operation=CLUSTER_ACTION)), 3),
    "a principal without a type, beside others of its resource": (
        create(acl(principal="alice"), acl(), acl(name="v")),
        3,
    ),
    "an empty principal": (create(acl(principal="")), 3),
    "a user without a name": (create(acl(principal="User:", name="q1")), 3),
    "another type of principal": (create(acl(principal="Group:x:y", name="q1")), 3),
    "an empty host": (create(acl(host="", name="q2")), 3),
    "names": (create(*(acl(name=name) for name in NAMES)), 3),
    "all types": (create(*(acl(kind, "q", operation=DESCRIBE) for kind in (GROUP, TRANSACTIONAL_ID, TOKEN, USER))), 3),
    "an operation that the type does not have": (create(acl(operation=13)), 3),
    "a denial": (create(acl(permission=DENY, host="10.0.0.1", principal="User:é:x")), 3),
    **{
        f"an ACL with {code} {value}": (create(_with_code(code, value), acl()), 3)
        for code in CODES
        for value in (UNKNOWN, ANY, FUTURE, -1)
    },
    "an ACL with MATCH": (create(acl(pattern_type=MATCH), acl()), 3),
    "everything": (describe(), 3),
    "everything in version 0": (describe(pattern_type_filter=LITERAL), 0),
    "what concerns u2": (describe(resource_type_filter=TOPIC, resource_name_filter="u2", pattern_type_filter=MATCH), 3),
    "prefixed ones": (describe(pattern_type_filter=PREFIXED), 3),
    "those named u": (describe(resource_name_filter="u"), 3),
    "those with an empty name": (describe(resource_name_filter=""), 3),
    "those of a principal": (describe(principal_filter="User:é:x"), 3),
    "those of a principal without a type": (describe(principal_filter="a"), 3),
    "those of a host": (describe(host_filter="10.0.0.1", operation=READ, permission_type=DENY), 3),
    **{
        f"a filter with {code} {value}": (describe(**{code: value}), 3)
        for code in FILTER_CODES
        for value in (UNKNOWN, FUTURE)
    },
    "delete what is not there": (delete({"resource_name_filter": "nothing"}, {"resource_name_filter": "a/b"}), 3),
    "delete by no filter": (delete(), 3),
    **{f"delete by {code} {value}": (delete({code: value}), 3) for code in FILTER_CODES for value in (UNKNOWN, FUTURE)},
    "delete by the same filter twice": (
        delete(*[{"resource_name_filter": "q1", "pattern_type_filter": LITERAL}] * 2),
        3,
    ),
    "delete one that is named completely": (
        delete({"resource_type_filter": TOPIC, "resource_name_filter": "q2", "pattern_type_filter": LITERAL}),
        3,
    ),
    "delete in version 0": (delete({"resource_name_filter": "x", "pattern_type_filter": LITERAL}), 0),
    "delete in version 1": (delete({"resource_name_filter": "v"}), 1),
    "delete what concerns u2, then the rest": (
        delete({"resource_name_filter": "u2", "pattern_type_filter": MATCH, "resource_type_filter": TOPIC}, {}),
        3,
    ),
    "nothing is left": (describe(), 3),
}


def plain(value: Any) -> Any:
    """A response as JSON, in an order of its own: Kafka's is that of a hash table."""
    if isinstance(value, Message):
        fields = {field.attribute: plain(getattr(value, field.attribute)) for field in value.__schema__.fields}
        for name in ("resources", "acls", "matching_acls"):
            if name in fields:
                fields[name].sort(key=repr)
        return fields
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


async def answers_of(port: int) -> dict[str, Any]:
    """Plays all steps against the broker at a port, each on a connection of its own; None is the end of it."""
    found = {}
    for name, (request, version) in STEPS.items():
        async with raw_client(port) as client:
            found[name] = plain(await client.call(request, version))
    return found

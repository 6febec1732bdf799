"""Random ACLs, and requests about which an authorizer decides: the same ones on every machine, from a seed.

Names, principals and hosts are few, so that rules meet: prefixes of each other, the wildcard, denials beside
allowances. No request is about a longer name that begins with *: to these, Kafka's StandardAuthorizer does not apply
the ACLs of the wildcard (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from odradek.broker.security.authorizer.acl import AccessControlEntry, AclBinding, ResourcePattern
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

SETS = 100_000
SETS_PER_BLOCK = 10_000
BLOCKS = SETS // SETS_PER_BLOCK
REQUESTS_PER_SET = 4
ACLS_PER_TYPE = 1500
MANY_ACLS = 60

SUPER_USERS = ["", "User:root", "User:root; User:CN=a,O=b:c;;Group:alice"]
PRINCIPALS = ["User:alice"] * 5 + [
    "User:bob",
    "User:root",
    "User:CN=a,O=b:c",
    "Group:alice",
    "User:ANONYMOUS",
    "User:*",
]
ACL_PRINCIPALS = PRINCIPALS + ["User:*"] * 4
HOSTS = ["10.0.0.1"] * 3 + ["127.0.0.1", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:a:0:1", "::1", "::ffff:10.0.0.1"]
"""Of clients; the last two are other forms of addresses before them."""
ACL_HOSTS = ["*"] * 6 + ["10.0.0.1"] * 3 + ["127.0.0.1", "0:0:0:0:0:0:0:1", "::1", "10.0.0.2"]
NAMES = [
    "a",
    "ab",
    "abc",
    "abcd",
    "abd",
    "b",
    "ba",
    "*",
    "hard",
    "hardcode",
    "kafka-cluster",
    "A",
    "ä",
    "äb",
    "a b",
]
ACL_NAMES = NAMES + ["*a"] + ["*"] * 6
OPERATIONS = [each for each in AclOperation if each >= AclOperation.READ]
ACL_OPERATIONS = (
    OPERATIONS + [AclOperation.ALL] * 4 + [AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER_CONFIGS]
)
ASKED = OPERATIONS + [AclOperation.DESCRIBE] * 8 + [AclOperation.READ] * 4 + [AclOperation.DESCRIBE_CONFIGS] * 3
TYPES = [each for each in AclResourceType if each >= AclResourceType.TOPIC]
PATTERN_TYPES = [AclPatternType.LITERAL] * 3 + [AclPatternType.PREFIXED] * 2
PERMISSIONS = [AclPermissionType.ALLOW] * 3 + [AclPermissionType.DENY]

T = TypeVar("T")


class Request(NamedTuple):
    """`name` None: some resource of the type."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str | None


class Case(NamedTuple):
    """A set of ACLs, and what is asked about it."""

    super_users: str
    allows_everyone: bool
    acls: list[AclBinding]
    requests: list[Request]


class Source:
    """Only `Random.random` draws the same numbers in every release of Python."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def one_of(self, items: Sequence[T]) -> T:
        return items[int(self._random() * len(items))]

    def below(self, end: int) -> int:
        return int(self._random() * end)


def cases(block: int) -> Iterator[Case]:
    """The cases of one block, of BLOCKS."""
    source = Source(block)
    pools = {each: [_acl(source, each) for _ in range(ACLS_PER_TYPE)] for each in TYPES}
    everything = [acl for pool in pools.values() for acl in pool]
    for _ in range(SETS_PER_BLOCK):
        subject = source.one_of(TYPES)
        size = MANY_ACLS if source.below(100) == 0 else source.below(10)
        acls = [source.one_of(pools[subject] if source.below(5) else everything) for _ in range(size)]
        requests = [_request(source, subject) for _ in range(REQUESTS_PER_SET)]
        yield Case(source.one_of(SUPER_USERS), source.below(2) == 0, list(dict.fromkeys(acls)), requests)


def _acl(source: Source, resource_type: AclResourceType) -> AclBinding:
    return AclBinding(
        ResourcePattern(resource_type, source.one_of(PATTERN_TYPES), source.one_of(ACL_NAMES)),
        AccessControlEntry(
            source.one_of(ACL_PRINCIPALS),
            source.one_of(ACL_HOSTS),
            source.one_of(ACL_OPERATIONS),
            source.one_of(PERMISSIONS),
        ),
    )


def _request(source: Source, subject: AclResourceType) -> Request:
    return Request(
        source.one_of(PRINCIPALS),
        source.one_of(HOSTS),
        source.one_of(ASKED),
        subject if source.below(10) else source.one_of(TYPES),
        source.one_of(NAMES) if source.below(4) else None,
    )

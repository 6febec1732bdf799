"""Paths and values of the entries with ACLs: those of Apache Kafka's AclAuthorizer.

    /kafka-acl/TYPE/NAME                        the ACLs of one resource
                                                {"acls":[{"principal":"User:a","permissionType":"Allow","host":"*",
                                                "operation":"Read"}],"version":1}
    /kafka-acl-extended/prefixed/TYPE/NAME      the same, of all resources whose names begin with NAME
    /kafka-acl-changes/acl_changes_SEQUENCE     TYPE:NAME, as in TRANSACTIONAL_ID:a: the ACLs of a resource have changed
    /kafka-acl-extended-changes/acl_changes_SEQUENCE
                                                {"version":1,"resourceType":"TOPIC","name":"a","patternType":"PREFIXED"}

TYPE is written as in TransactionalId, except in the notices. ZooKeeper does not take every name: see `name_fault`.
Parsing raises StoreDamaged, naming the path. Source: Kafka's `ZkData.scala`, `AclEntry`, `SecurityUtils`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Any, TypeVar

from odradek.broker.metadata_store.interface import Create, StoreDamaged
from odradek.broker.metadata_store.znode_values import FAULTS, encoded, parsed, valid_text
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

ROOTS = {AclPatternType.LITERAL: "/kafka-acl", AclPatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {AclPatternType.LITERAL: "/kafka-acl-changes", AclPatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_NAME = "acl_changes_"
VERSION = 1
_NOT_IN_PATHS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff/]")
"""What ZooKeeper refuses in a path. Java has two surrogates for characters beyond the first 65,536."""

E = TypeVar("E", bound=IntEnum)


@lru_cache(typed=True)
def _pascal(member: IntEnum) -> str:
    return "".join(word.capitalize() for word in member.name.split("_"))


def _names(members: Iterable[E]) -> dict[str, E]:
    """The members by their names: TransactionalId, and in any case without underscores."""
    return {_pascal(member).upper(): member for member in members}


RESOURCE_TYPES = {
    _pascal(member): member
    for member in AclResourceType
    if member not in (AclResourceType.UNKNOWN, AclResourceType.ANY)
}
"""By their names in paths."""
_OPERATIONS = _names(AclOperation)
_PERMISSIONS = _names(AclPermissionType)
PERSISTENT_PATHS = (
    *("/kafka-acl", "/kafka-acl-extended", "/kafka-acl-extended/prefixed"),
    *(f"{root}/{name}" for root in ROOTS.values() for name in RESOURCE_TYPES),
    *CHANGES.values(),
)
"""The entries that Kafka's authorizer creates at every start if they are missing; parents first."""


def acl_path(pattern: ResourcePattern) -> str:
    """The path of the ACLs of a pattern."""
    return f"{ROOTS[pattern.pattern_type]}/{_pascal(pattern.resource_type)}/{pattern.name}"


def name_fault(name: str) -> str | None:
    """Why a name cannot be part of a path, or None if it can."""
    if "/" in name:
        return "contains a slash"
    if name in (".", "..") or _NOT_IN_PATHS.search(name):
        return "contains a character that ZooKeeper does not take in a path"
    return None


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    """Encodes the ACLs of one pattern, in order."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _pascal(entry.permission),
            "host": entry.host,
            "operation": _pascal(entry.operation),
        }
        for entry in sorted(entries)
    ]
    return encoded({"acls": acls, "version": VERSION})


def parse_acls(path: str, data: bytes | None) -> frozenset[AccessControlEntry]:
    """Parses the ACLs of one pattern. Operations and permissions of other releases become UNKNOWN."""

    def read(value: Any) -> frozenset[AccessControlEntry]:
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']} is not known")
        return frozenset(map(_entry, value["acls"]))

    return parsed(path, data, read) if data else frozenset()


def _entry(value: Any) -> AccessControlEntry:
    principal = valid_text(value["principal"])
    if ":" not in principal:
        raise ValueError(f"the principal {principal!r} is not TYPE:NAME")
    return AccessControlEntry(
        principal,
        valid_text(value["host"]),
        _OPERATIONS.get(value["operation"].upper(), AclOperation.UNKNOWN),
        _PERMISSIONS.get(value["permissionType"].upper(), AclPermissionType.UNKNOWN),
    )


def acl_change(pattern: ResourcePattern) -> Create:
    """The notice that the ACLs of a pattern have changed."""
    if pattern.pattern_type is AclPatternType.LITERAL:
        data = f"{pattern.resource_type.name}:{pattern.name}".encode()
    else:
        data = encoded(
            {
                "version": VERSION,
                "resourceType": pattern.resource_type.name,
                "name": pattern.name,
                "patternType": pattern.pattern_type.name,
            }
        )
    return Create(f"{CHANGES[pattern.pattern_type]}/{CHANGE_NAME}", data, sequential=True)


def parse_acl_change(pattern_type: AclPatternType, path: str, data: bytes | None) -> ResourcePattern:
    """Parses a notice below `CHANGES[pattern_type]`."""
    if pattern_type is AclPatternType.PREFIXED:
        return parsed(path, data, _extended_change)
    try:
        name, colon, resource = (data or b"").decode().partition(":")
        if not colon:
            raise ValueError("is not TYPE:NAME")
        return ResourcePattern(AclResourceType[name.upper()], pattern_type, resource)
    except FAULTS as error:
        raise StoreDamaged(path, f"contains an invalid value: {error!r}") from error


def _extended_change(value: Any) -> ResourcePattern:
    if int(value["version"]) > VERSION:
        raise ValueError(f"version {value['version']} is not known")
    if value["patternType"].upper() != AclPatternType.PREFIXED.name:
        raise ValueError(f"pattern type {value['patternType']!r} is not known")
    return ResourcePattern(AclResourceType[value["resourceType"].upper()], AclPatternType.PREFIXED, str(value["name"]))

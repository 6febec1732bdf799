"""What an ACL says: on which resources who may, or may not, perform which operation.

Source: Kafka's `AclBinding`, `ResourcePattern`, `AccessControlEntry` and their filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

WILDCARD = "*"
"""As the literal name of a resource, all of the type; as a host, all hosts."""
EVERYBODY = "User:*"
"""The principal of an entry that concerns all principals."""


class ResourcePattern(NamedTuple):
    """The resources that an ACL concerns. `pattern_type` is LITERAL or PREFIXED."""

    resource_type: AclResourceType
    pattern_type: AclPatternType
    name: str


class AccessControlEntry(NamedTuple):
    """Who may (ALLOW) or may not (DENY) do what from where. `principal` is TYPE:NAME."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType


class AclBinding(NamedTuple):
    """One ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class PatternFilter(NamedTuple):
    """Selects resource patterns. ANY and None select everything. With MATCH, the filter selects the patterns that
    concern the resource `name`.
    """

    resource_type: AclResourceType
    pattern_type: AclPatternType
    name: str | None

    def matches(self, pattern: ResourcePattern) -> bool:
        """Whether the filter selects the pattern."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not AclPatternType.MATCH:
            return False
        if pattern.pattern_type is AclPatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD


class EntryFilter(NamedTuple):
    """Selects entries. ANY and None select everything."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    def matches(self, entry: AccessControlEntry) -> bool:
        """Whether the filter selects the entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermissionType.ANY, entry.permission)
        )


class AclFilter(NamedTuple):
    """Selects ACLs."""

    pattern: PatternFilter
    entry: EntryFilter


class Filters:
    """The filters of a request, in their order.

    A filter with a name, unless its pattern type is MATCH, selects only patterns with this name, and is found by it.
    """

    def __init__(self, filters: Sequence[AclFilter]) -> None:
        self.all = filters
        self._by_name: dict[str, list[int]] = {}
        self._others: list[int] = []
        for index, (pattern, _) in enumerate(filters):
            if pattern.name is None or pattern.pattern_type is AclPatternType.MATCH:
                self._others.append(index)
            else:
                self._by_name.setdefault(pattern.name, []).append(index)

    def of(self, pattern: ResourcePattern) -> list[int]:
        """The positions of the filters that select a pattern, in order."""
        candidates = [*self._by_name.get(pattern.name, ()), *self._others]
        return sorted(index for index in candidates if self.all[index].pattern.matches(pattern))

    def first(self, pattern: ResourcePattern, entry: AccessControlEntry) -> int | None:
        """The position of the first filter that selects an ACL; None if there is none."""
        return next((index for index in self.of(pattern) if self.all[index].entry.matches(entry)), None)

    def named_patterns(self) -> Iterator[ResourcePattern]:
        """The patterns that a filter names completely; whether they have ACLs is not known."""
        for (resource_type, pattern_type, name), _ in self.all:
            is_single = pattern_type in (AclPatternType.LITERAL, AclPatternType.PREFIXED)
            if name and is_single and resource_type not in (AclResourceType.UNKNOWN, AclResourceType.ANY):
                yield ResourcePattern(resource_type, pattern_type, name)

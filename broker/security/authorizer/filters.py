"""Many filters at once: which of them select a resource pattern.

A filter with a name, unless its pattern type is MATCH, selects only patterns with this name, and is found by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.broker.security.authorizer.acl import AccessControlEntry, AclFilter, ResourcePattern
from odradek.protocol.wire_codes import AclPatternType, AclResourceType


class Filters:
    """The filters of a request, in their order."""

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

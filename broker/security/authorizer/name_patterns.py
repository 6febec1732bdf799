"""A set of patterns of names, and whether any of them matches a name: one question has a bound, whatever the set.

    literal     the name itself
    prefixed    every name that begins with it
    wildcard    the literal *: every name

Whether *any* prefix matches depends only on the shortest ones, of which none begins with another. Of these, only the
greatest that is not above the name can be a prefix of it:

    all         a  ab  abc  b  cd  cde        in order
    shortest    a           b  cd
    name abd    the greatest shortest one up to abd is a: it matches
    name ca     the greatest shortest one up to ca is b: none matches

So a question costs one lookup and one binary search, however long the name is and however many prefixes it has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from odradek.broker.security.authorizer.acl import WILDCARD
from odradek.protocol.wire_codes import AclPatternType


class Prefixes:
    """A set of prefixes, in order."""

    __slots__ = ("_all", "_shortest")

    def __init__(self) -> None:
        self._all: list[str] = []
        self._shortest: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[str]:
        """Iterates over the shortest ones: a name begins with one of them if it begins with any."""
        return iter(self._shortest)

    def match(self, name: str) -> bool:
        """Whether the name begins with any of the prefixes."""
        index = bisect_right(self._shortest, name)
        return index > 0 and name.startswith(self._shortest[index - 1])

    def add(self, prefix: str) -> None:
        """Adds a prefix, which is not in the set."""
        insort(self._all, prefix)
        if not self.match(prefix):
            first, after = _range(self._shortest, prefix)
            self._shortest[first:after] = [prefix]

    def remove(self, prefix: str) -> None:
        """Removes a prefix, which is in the set."""
        del self._all[bisect_left(self._all, prefix)]
        index = bisect_left(self._shortest, prefix)
        if index < len(self._shortest) and self._shortest[index] == prefix:
            first, after = _range(self._all, prefix)
            self._shortest[index : index + 1] = _shortest_of(self._all[first:after])


class NamePatterns:
    """A set of patterns."""

    __slots__ = ("literals", "prefixes")

    def __init__(self) -> None:
        self.literals: set[str] = set()
        self.prefixes = Prefixes()

    def __bool__(self) -> bool:
        return bool(self.literals) or bool(self.prefixes)

    @property
    def has_wildcard(self) -> bool:
        """Whether the wildcard is in the set."""
        return WILDCARD in self.literals

    def match(self, name: str) -> bool:
        """Whether any of the patterns matches the name."""
        literals = self.literals
        return name in literals or WILDCARD in literals or self.prefixes.match(name)

    def add(self, pattern_type: AclPatternType, name: str) -> None:
        """Adds a pattern, which is not in the set."""
        if pattern_type is AclPatternType.PREFIXED:
            self.prefixes.add(name)
        else:
            self.literals.add(name)

    def remove(self, pattern_type: AclPatternType, name: str) -> None:
        """Removes a pattern, which is in the set."""
        if pattern_type is AclPatternType.PREFIXED:
            self.prefixes.remove(name)
        else:
            self.literals.remove(name)


def _range(names: list[str], prefix: str) -> tuple[int, int]:
    """Where the names that begin with the prefix start in an ordered list, and where they end."""
    return bisect_left(names, prefix), bisect_right(names, prefix, key=lambda name: name[: len(prefix)])


def _shortest_of(names: list[str]) -> list[str]:
    """Those names of an ordered list that begin with no other."""
    found: list[str] = []
    for name in names:
        if not found or not name.startswith(found[-1]):
            found.append(name)
    return found

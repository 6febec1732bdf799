"""Decisions by ACLs, as Kafka's `StandardAuthorizer` makes them.

    (A) A super user may do everything.
    (B) The entries that count are those of the principal or of User:*, from the client's host or from *, on resource
        patterns that match the resource. If one denies the operation, or ALL, it is denied, whatever others allow.
    (C) Otherwise, if one allows the operation, or ALL, it is allowed. Who is allowed READ, WRITE, DELETE or ALTER may
        also DESCRIBE, and who is allowed ALTER_CONFIGS may also DESCRIBE_CONFIGS. Denials imply nothing.
    (D) Otherwise it is denied; but with allow.everyone.if.no.acl.found it is allowed if no pattern at all matches the
        resource, also not with entries of others.
    (E) `allows_some` asks for a resource named "hardcode" first, by (A) to (D). Otherwise the operation is allowed if
        an entry allows it, or ALL, by the wildcard or by a pattern that no denial covers: a denial of the same literal,
        or of a prefix of the pattern. A denial by the wildcard denies. Here no operation implies another.
    (F) Decisions are remembered until the ACLs change, within MOST_DECISIONS and MOST_CHARACTERS.

Who asks is compared as text: TYPE:NAME, and the host as Java writes it. Source: Kafka's `StandardAuthorizerData`,
`Authorizer.authorizeByResourceType`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from odradek.broker.security.authorizer.acl import EVERYBODY, WILDCARD, AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.name_patterns import NamePatterns
from odradek.protocol.wire_codes import AclOperation, AclPermissionType, AclResourceType

MOST_DECISIONS = 20_000
MOST_CHARACTERS = 4 << 20
"""How many characters the names of all remembered decisions may have together."""
SOME_NAME = "hardcode"
"""The resource that Kafka asks for (E)."""

ALLOWED_BY = {
    AclOperation.DESCRIBE: (
        AclOperation.ALL,
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (
        AclOperation.ALL,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
"""The operations that allow another one (C); all others are allowed by themselves and by ALL."""

Decision = tuple[str, str, AclOperation, AclResourceType, str]
Patterns = dict[AclOperation, NamePatterns]


class Rules:
    """What the entries of one principal from one host say about the resources of one type."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.denied: Patterns = {}
        self.allowed: Patterns = {}

    def of(self, permission: AclPermissionType) -> Patterns:
        """A permission that is not known denies, as in Kafka."""
        return self.allowed if permission is AclPermissionType.ALLOW else self.denied


class AclAuthorizer:
    """Knows the ACLs that it was given with `put`. `super_users` are principals, TYPE:NAME."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.changes = 0
        self._allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._acls: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        self._patterns: dict[AclResourceType, NamePatterns] = {}
        """All patterns that have entries (D)."""
        self._rules: dict[tuple[AclResourceType, str, str], Rules] = {}
        """By type, principal and host."""
        self._decisions: dict[Decision, bool] = {}
        self._some_decisions: dict[tuple[str, str, AclOperation, AclResourceType], bool] = {}
        self._characters = 0
        """Those of the remembered decisions (F)."""

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[AccessControlEntry]]:
        """All ACLs: the entries of each pattern that has any."""
        return self._acls

    # Asking

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """See `Authorizer`."""
        key = principal, host, operation, resource_type, name
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            self._make_room(len(principal) + len(name))
            self._decisions[key] = decision
        return decision

    def allows_some(self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """See `Authorizer`."""
        if self.allows(principal, host, operation, resource_type, SOME_NAME):
            return True
        key = principal, host, operation, resource_type
        decision = self._some_decisions.get(key)
        if decision is None:
            decision = self._decide_some(self._rules_of(principal, host, resource_type), operation)
            self._make_room(len(principal))
            self._some_decisions[key] = decision
        return decision

    def allows_from_somewhere(
        self, principal: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Whether the principal may perform the operation on a resource from at least one host."""
        hosts = {WILDCARD, *(host for kind, _, host in self._rules if kind is resource_type)}
        return any(self._decide(principal, host, operation, resource_type, name) for host in hosts)

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        rules = self._rules_of(principal, host, resource_type)
        if any(_match(each.denied, (operation, AclOperation.ALL), name) for each in rules):
            return False
        allowing = ALLOWED_BY.get(operation) or (operation, AclOperation.ALL)
        if any(_match(each.allowed, allowing, name) for each in rules):
            return True
        if not self._allow_everyone_if_no_acl_found:
            return False
        patterns = self._patterns.get(resource_type)
        return patterns is None or not patterns.match(name)

    def _rules_of(self, principal: str, host: str, resource_type: AclResourceType) -> list[Rules]:
        keys = {(resource_type, who, where) for who in (principal, EVERYBODY) for where in (host, WILDCARD)}
        return [rules for key in keys if (rules := self._rules.get(key)) is not None]

    def _decide_some(self, rules: list[Rules], operation: AclOperation) -> bool:
        operations = operation, AclOperation.ALL
        denied = [each.denied[one] for each in rules for one in operations if one in each.denied]
        allowed = [each.allowed[one] for each in rules for one in operations if one in each.allowed]
        if any(each.has_wildcard for each in denied):
            return False
        if any(each.has_wildcard for each in allowed):
            return True
        denied_literals = set().union(*(each.literals for each in denied))
        denied_prefixes = [each.prefixes for each in denied if each.prefixes]
        patterns = chain(*(each.prefixes for each in allowed), *(each.literals - denied_literals for each in allowed))
        return any(not any(prefixes.match(name) for prefixes in denied_prefixes) for name in patterns)

    def _make_room(self, characters: int) -> None:
        """Room for one more decision (F)."""
        self._characters += characters
        if len(self._decisions) + len(self._some_decisions) >= MOST_DECISIONS or self._characters > MOST_CHARACTERS:
            self._forget_decisions()
            self._characters = characters

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self._some_decisions.clear()
        self._characters = 0

    # Changing

    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        """Replaces the entries of a pattern; returns whether there was a change."""
        before, after = self._acls.get(pattern, frozenset()), frozenset(entries)
        if before == after:
            return False
        for entry in before - after:
            self._remove(pattern, entry)
        for entry in after - before:
            self._add(pattern, entry)
        if after:
            self._acls[pattern] = after
        else:
            del self._acls[pattern]
        if not before:
            self._patterns.setdefault(pattern.resource_type, NamePatterns()).add(pattern.pattern_type, pattern.name)
        elif not after:
            self._patterns[pattern.resource_type].remove(pattern.pattern_type, pattern.name)
        self._forget_decisions()
        self.changes += 1
        return True

    def _add(self, pattern: ResourcePattern, entry: AccessControlEntry) -> None:
        rules = self._rules.setdefault((pattern.resource_type, entry.principal, entry.host), Rules())
        patterns = rules.of(entry.permission).setdefault(entry.operation, NamePatterns())
        patterns.add(pattern.pattern_type, pattern.name)

    def _remove(self, pattern: ResourcePattern, entry: AccessControlEntry) -> None:
        """Leaves nothing empty behind: principals come and go."""
        key = pattern.resource_type, entry.principal, entry.host
        rules = self._rules[key]
        by_operation = rules.of(entry.permission)
        patterns = by_operation[entry.operation]
        patterns.remove(pattern.pattern_type, pattern.name)
        if not patterns:
            del by_operation[entry.operation]
        if not rules.denied and not rules.allowed:
            del self._rules[key]


def _match(patterns: Patterns, operations: Iterable[AclOperation], name: str) -> bool:
    for operation in operations:
        found = patterns.get(operation)
        if found is not None and found.match(name):
            return True
    return False

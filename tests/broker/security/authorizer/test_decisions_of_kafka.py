"""Our decisions are those of Kafka's StandardAuthorizer, about 400,000 requests on 100,000 sets of ACLs
(decisions/recorder.py), of which a soak asks all, and a rule that is broken on purpose is noticed by the first few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice

import pytest

from odradek.broker.requests.endpoint import java_host
from odradek.broker.security.authorizer import acl_authorizer
from odradek.broker.security.authorizer.acl import EVERYBODY, WILDCARD, AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.acl_authorizer import ALLOWED_BY, AclAuthorizer
from odradek.broker.security.authorizer.name_patterns import NamePatterns, Prefixes
from odradek.broker.settings.authorizers import CLASSES
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.broker.security.authorizer.decisions import recorder
from tests.broker.security.authorizer.decisions.cases import BLOCKS, REQUESTS_PER_SET, SETS, Case, Request, cases
from tests.broker.security.authorizer.decisions.recorder import ask, digest_of
from tests.soak import seeds

RECORDED = recorder.recorded()
SOME_CASES = 2000
HostOf = Callable[[str], str]


@cache
def super_users_of(text: str) -> frozenset[str]:
    values = BrokerConfig.from_mapping({"authorizer.class.name": CLASSES[0], "super.users": text}).authorizer()
    assert values is not None
    return values.super_users


def authorizer_of(case: Case) -> AclAuthorizer:
    made = AclAuthorizer(super_users_of(case.super_users), allow_everyone_if_no_acl_found=case.allows_everyone)
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for pattern, entry in case.acls:
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        made.put(pattern, entries)
    return made


def decision(made: AclAuthorizer, request: Request, host_of: HostOf) -> bool:
    host = host_of(request.host)
    if request.name is None:
        return made.allows_some(request.principal, host, request.operation, request.resource_type)
    return made.allows(request.principal, host, request.operation, request.resource_type, request.name)


def our_decisions(some: Iterable[Case], host_of: HostOf = java_host) -> Iterator[str]:
    for case in some:
        made = authorizer_of(case)
        for request in case.requests:
            yield "1" if decision(made, request, host_of) else "0"


@pytest.mark.long
@pytest.mark.soak("400,000 decisions", minutes=1)
@pytest.mark.parametrize("block", seeds(1, of=2, in_soak=BLOCKS))
def test_decisions_are_those_of_kafka(block: int) -> None:
    some = list(cases(block))
    assert digest_of(some) == RECORDED[block].digest, "the cases are others than those recorded"
    ours, kafkas = list(our_decisions(some)), RECORDED[block].decisions
    assert len(kafkas) == SETS // BLOCKS * REQUESTS_PER_SET
    different = [index for index in range(len(kafkas)) if ours[index] != kafkas[index]]
    assert not different, [
        (some[index // REQUESTS_PER_SET], some[index // REQUESTS_PER_SET].requests[index % REQUESTS_PER_SET])
        for index in different[:1]
    ]


def test_the_cases_are_neither_all_allowed_nor_all_denied() -> None:
    allowed = sum(one.decisions.count("1") for one in RECORDED) / (SETS * REQUESTS_PER_SET)
    assert 0.2 < allowed < 0.8


def test_kafka_still_decides_as_recorded(kafka_control: list[str]) -> None:
    assert ask(kafka_control, 0) == RECORDED[0]


# Rules that are broken on purpose


class AllowBeforeDeny(AclAuthorizer):
    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        allowing = ALLOWED_BY.get(operation) or (operation, AclOperation.ALL)
        for rules in self._rules_of(principal, host, resource_type):
            if any(found.match(name) for each in allowing if (found := rules.allowed.get(each)) is not None):
                return True
        return super()._decide(principal, host, operation, resource_type, name)


class DenyBeforeSuperUsers(AclAuthorizer):
    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        for rules in self._rules_of(principal, host, resource_type):
            if any(found.match(name) for found in rules.denied.values()):
                return False
        return super()._decide(principal, host, operation, resource_type, name)


class DenialsImply(AclAuthorizer):
    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if principal not in self.super_users:
            for rules in self._rules_of(principal, host, resource_type):
                for each in ALLOWED_BY.get(operation, ()):
                    if each in rules.denied and rules.denied[each].match(name):
                        return False
        return super()._decide(principal, host, operation, resource_type, name)


class EveryoneIfThereAreNoAclsAtAll(AclAuthorizer):
    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        changed = super().put(pattern, entries)
        self._patterns.setdefault(pattern.resource_type, NamePatterns()).literals.add(WILDCARD)
        return changed


class EveryoneIfNoAclIsTheirs(AclAuthorizer):
    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        changed = super().put(pattern, entries)
        if not any(entry.principal == "User:alice" for entry in entries):
            self._patterns[pattern.resource_type] = NamePatterns()
        return changed


class NobodyWithoutAcls(AclAuthorizer):
    def __init__(self, super_users: Iterable[str], *, allow_everyone_if_no_acl_found: bool) -> None:
        super().__init__(super_users)


class OnlyOwnEntries(AclAuthorizer):
    def _rules_of(self, principal: str, host: str, resource_type: AclResourceType) -> list[acl_authorizer.Rules]:
        return [
            rules
            for where in {host, WILDCARD}
            if (rules := self._rules.get((resource_type, principal, where))) is not None
        ]


class AnyHost(AclAuthorizer):
    def _rules_of(self, principal: str, host: str, resource_type: AclResourceType) -> list[acl_authorizer.Rules]:
        return [
            rules
            for (kind, who, _), rules in self._rules.items()
            if kind == resource_type and who in (principal, EVERYBODY)
        ]


class OneTypeForAll(AclAuthorizer):
    def _rules_of(self, principal: str, host: str, resource_type: AclResourceType) -> list[acl_authorizer.Rules]:
        return [
            rules
            for (_, who, where), rules in self._rules.items()
            if who in (principal, EVERYBODY) and where in (host, WILDCARD)
        ]


class SomeByTheNameAlone(AclAuthorizer):
    def _decide_some(self, rules: list[acl_authorizer.Rules], operation: AclOperation) -> bool:
        return False


class SomeInSpiteOfDenials(AclAuthorizer):
    def _decide_some(self, rules: list[acl_authorizer.Rules], operation: AclOperation) -> bool:
        for each in rules:
            each.denied = {}
        return super()._decide_some(rules, operation)


class SomeByImpliedOperations(AclAuthorizer):
    def _decide_some(self, rules: list[acl_authorizer.Rules], operation: AclOperation) -> bool:
        return (
            any(super(SomeByImpliedOperations, self)._decide_some(rules, each) for each in ALLOWED_BY[operation])
            if (operation in ALLOWED_BY)
            else super()._decide_some(rules, operation)
        )


class NoPrefixes(AclAuthorizer):
    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        return super().put(pattern._replace(pattern_type=AclPatternType.LITERAL), entries)


class NoDenials(AclAuthorizer):
    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        return super().put(pattern, [each for each in entries if each.permission is AclPermissionType.ALLOW])


BROKEN_CLASSES = [
    *(AllowBeforeDeny, DenyBeforeSuperUsers, DenialsImply, EveryoneIfThereAreNoAclsAtAll, EveryoneIfNoAclIsTheirs),
    *(NobodyWithoutAcls, OnlyOwnEntries, AnyHost, OneTypeForAll, SomeByTheNameAlone, SomeInSpiteOfDenials),
    *(SomeByImpliedOperations, NoPrefixes, NoDenials),
]


@cache
def first_cases() -> list[Case]:
    return list(islice(cases(0), SOME_CASES))


def differs(host_of: HostOf = java_host) -> bool:
    kafkas = RECORDED[0].decisions[: SOME_CASES * REQUESTS_PER_SET]
    return any(ours != theirs for ours, theirs in zip(our_decisions(first_cases(), host_of), kafkas, strict=True))


def test_without_a_broken_rule_the_first_cases_are_green() -> None:
    assert not differs()


@pytest.mark.parametrize("broken", BROKEN_CLASSES)
def test_a_broken_rule_is_noticed(broken: type[AclAuthorizer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "AclAuthorizer", broken)
    assert differs()


def without(*left_out: AclOperation) -> dict[AclOperation, tuple[AclOperation, ...]]:
    return {
        implied: tuple(each for each in allowing if each not in left_out) for implied, allowing in ALLOWED_BY.items()
    }


@pytest.mark.parametrize(
    "operation",
    [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS],
)
def test_an_implied_operation_that_is_left_out_is_noticed(
    operation: AclOperation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_authorizer, "ALLOWED_BY", without(operation))
    assert differs()


def test_a_prefix_that_is_missed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def match_only_the_last(self: Prefixes, name: str) -> bool:
        return any(name.startswith(prefix) for prefix in self._all[-1:])

    monkeypatch.setattr(Prefixes, "match", match_only_the_last)
    assert differs()


def test_a_prefix_that_must_be_shorter_than_the_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    match = Prefixes.match
    monkeypatch.setattr(Prefixes, "match", lambda self, name: bool(name) and match(self, name[:-1]))
    assert differs()


def test_the_wildcard_as_a_mere_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        NamePatterns, "match", lambda self, name: name in self.literals or bool(self.prefixes.match(name))
    )
    assert differs()


def test_addresses_that_are_not_written_as_in_java_are_noticed() -> None:
    assert differs(host_of=str)

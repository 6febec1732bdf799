"""Decisions by ACLs: the rules of `acl_authorizer.py`, by letter. tests/vectors has Kafka's own."""

from __future__ import annotations

import random

import pytest

from odradek.broker.requests.endpoint import java_host
from odradek.broker.security.authorizer import acl_authorizer
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.broker.security.authorizer.authorizer import Authorizer
from odradek.broker.security.authorizer.name_patterns import NamePatterns
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
READ, DESCRIBE, ALL = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL
ALICE, HOST = "User:alice", "10.0.0.1"


def allow(
    operation: AclOperation = READ, principal: str = ALICE, host: str = "*", permission: AclPermissionType | None = None
) -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, permission or AclPermissionType.ALLOW)


def deny(operation: AclOperation = READ, principal: str = ALICE, host: str = "*") -> AccessControlEntry:
    return allow(operation, principal, host, AclPermissionType.DENY)


def literal(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, LITERAL, name)


def prefixed(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, PREFIXED, name)


def authorizer(
    acls: dict[ResourcePattern, list[AccessControlEntry]], super_users: tuple[str, ...] = (), everyone: bool = False
) -> AclAuthorizer:
    made = AclAuthorizer(super_users, allow_everyone_if_no_acl_found=everyone)
    for pattern, entries in acls.items():
        made.put(pattern, entries)
    return made


def may_read(made: Authorizer, name: str, principal: str = ALICE, host: str = HOST) -> bool:
    return made.allows(principal, host, READ, TOPIC, name)


def test_a_super_user_may_do_what_is_denied() -> None:
    made = authorizer({literal("*"): [deny(ALL, "User:*")]}, super_users=("User:root",))
    assert may_read(made, "orders", "User:root")
    assert not may_read(made, "orders")
    assert made.allows_some("User:root", HOST, READ, TOPIC)


@pytest.mark.parametrize("pattern", [literal("orders"), prefixed("ord"), prefixed("orders"), literal("*")])
def test_a_denial_by_any_matching_pattern_outweighs_what_others_allow(pattern: ResourcePattern) -> None:
    allowing = {literal("orders"): [allow()], prefixed("o"): [allow()], literal("*"): [allow(ALL, "User:*")]}
    assert may_read(authorizer(allowing), "orders")
    assert not may_read(authorizer(allowing | {pattern: [*allowing.get(pattern, []), deny()]}), "orders")


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        (literal("orders"), ["orders"], ["order", "orders2", "Orders", ""]),
        (prefixed("ord"), ["ord", "orders"], ["or", "xord", "Ord"]),
        (literal("*"), ["orders", "*", ""], []),
        (prefixed("*"), ["*", "*a"], ["orders"]),
    ],
)
def test_patterns_match_names(pattern: ResourcePattern, names: list[str], others: list[str]) -> None:
    made = authorizer({pattern: [allow()]})
    assert [may_read(made, name) for name in names] == [True] * len(names)
    assert [may_read(made, name) for name in others] == [False] * len(others)


def test_entries_concern_their_principal_and_host_alone() -> None:
    made = authorizer({literal("a"): [allow(host=HOST)], literal("b"): [allow(principal="User:*", host=HOST)]})
    assert may_read(made, "a")
    assert may_read(made, "b")
    assert may_read(made, "b", "User:bob")
    assert not may_read(made, "a", "User:bob")
    assert not may_read(made, "a", "Group:alice")
    assert not may_read(made, "a", host="10.0.0.2")
    assert not made.allows(ALICE, HOST, READ, GROUP, "a")


@pytest.mark.parametrize(
    ("granted", "implied", "not_implied"),
    [
        (AclOperation.READ, DESCRIBE, AclOperation.WRITE),
        (AclOperation.WRITE, DESCRIBE, AclOperation.READ),
        (AclOperation.DELETE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
        (AclOperation.ALTER, DESCRIBE, AclOperation.ALTER_CONFIGS),
        (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS, DESCRIBE),
        (ALL, AclOperation.CREATE, AclOperation.UNKNOWN),
    ],
)
def test_allowed_operations_imply_others_and_denied_ones_do_not(
    granted: AclOperation, implied: AclOperation, not_implied: AclOperation
) -> None:
    made = authorizer({literal("t"): [allow(granted)]})
    assert made.allows(ALICE, HOST, implied, TOPIC, "t")
    assert granted is ALL or not made.allows(ALICE, HOST, not_implied, TOPIC, "t")
    denied = authorizer({literal("t"): [deny(granted), allow(implied)]})
    assert denied.allows(ALICE, HOST, implied, TOPIC, "t") is (granted is not ALL)


def test_everyone_is_allowed_where_no_acl_matches_the_resource() -> None:
    made = authorizer({prefixed("secret"): [allow(principal="User:bob")]}, everyone=True)
    assert may_read(made, "orders")
    assert not may_read(made, "secrets")
    made.put(prefixed("secret"), [])
    assert may_read(made, "secrets")
    made.put(literal("*"), [allow(principal="User:bob")])
    assert not may_read(made, "orders")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ({}, False),
        ({literal("a"): [allow()]}, True),
        ({literal("a"): [allow(ALL)]}, True),
        ({prefixed("a"): [allow()]}, True),
        ({literal("a"): [allow(AclOperation.WRITE)]}, False),
        ({literal("a"): [allow(), deny()]}, False),
        ({literal("a"): [allow()], literal("b"): [deny()]}, True),
        ({literal("ab"): [allow()], prefixed("a"): [deny()]}, False),
        ({prefixed("a"): [allow()], prefixed("ab"): [deny()]}, True),
        ({prefixed("a"): [allow()], literal("a"): [deny()]}, True),
        ({literal("*"): [allow()], prefixed("h"): [deny()]}, True),
        ({literal("*"): [deny()], literal("a"): [allow()]}, False),
    ],
)
def test_what_is_allowed_on_some_resource(
    acls: dict[ResourcePattern, list[AccessControlEntry]], expected: bool
) -> None:
    assert authorizer(acls).allows_some(ALICE, HOST, READ, TOPIC) is expected


def test_an_implied_operation_on_some_resource_counts_only_for_the_name_that_kafka_asks_for() -> None:
    assert not authorizer({literal("a"): [allow()]}).allows_some(ALICE, HOST, DESCRIBE, TOPIC)
    assert authorizer({literal("*"): [allow()]}).allows_some(ALICE, HOST, DESCRIBE, TOPIC)


def test_a_change_is_seen_by_the_next_question_and_counted() -> None:
    made = authorizer({})
    assert not may_read(made, "t")
    assert not made.allows_some(ALICE, HOST, READ, TOPIC)
    assert made.put(literal("t"), [allow()])
    assert may_read(made, "t")
    assert made.allows_some(ALICE, HOST, READ, TOPIC)
    changes = made.changes
    assert not made.put(literal("t"), [allow()])
    assert made.changes == changes
    assert made.put(literal("t"), [])
    assert not may_read(made, "t")
    assert not made.allows_some(ALICE, HOST, READ, TOPIC)
    assert made.changes == changes + 1
    assert made.acls == {}


def test_remembered_decisions_are_bounded_in_number_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_authorizer, "MOST_DECISIONS", 100)
    monkeypatch.setattr(acl_authorizer, "MOST_CHARACTERS", 10_000)
    made = authorizer({prefixed("a"): [allow()]})
    for number in range(1000):
        assert may_read(made, f"a{number}")
        assert len(made._decisions) <= 100
    for number in range(100):
        assert may_read(made, f"a{number}".ljust(1000, "x"))
        assert len(made._decisions) <= 10


def test_patterns_answer_as_a_search_through_all_does() -> None:
    source = random.Random(7)
    patterns = NamePatterns()
    held: set[tuple[AclPatternType, str]] = set()

    def a_name() -> str:
        return "".join(source.choices("ab", k=source.randint(1, 6)))

    for _ in range(3000):
        pattern = source.choice((LITERAL, PREFIXED)), a_name()
        if pattern in held:
            held.remove(pattern)
            patterns.remove(*pattern)
        elif len(held) < 12:
            held.add(pattern)
            patterns.add(*pattern)
        name = a_name()
        expected = any(name == text or (kind is PREFIXED and name.startswith(text)) for kind, text in held)
        assert patterns.match(name) is expected, (name, held)


def test_of_nested_prefixes_only_the_shortest_is_compared() -> None:
    made = authorizer({prefixed("x" * length): [allow()] for length in range(1, 250)})
    (rules,) = made._rules.values()
    assert list(rules.allowed[READ].prefixes) == ["x"]
    assert may_read(made, "x" * 32_000)
    made.put(prefixed("x"), [])
    assert list(rules.allowed[READ].prefixes) == ["xx"]
    assert not may_read(made, "x")
    assert may_read(made, "x" * 32_000)


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::A:0:1", "2001:db8:0:0:0:a:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("node", "node"),
    ],
)
def test_hosts_are_written_as_java_writes_them(address: str, java: str) -> None:
    assert java_host(address) == java

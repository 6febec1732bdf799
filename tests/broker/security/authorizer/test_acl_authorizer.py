"""Changes of ACLs, and the bounds of what is remembered of decisions and compared for one.

The decisions themselves: test_decisions_of_kafka.py.
"""

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

TOPIC, READ = AclResourceType.TOPIC, AclOperation.READ
LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
ALICE, HOST = "User:alice", "10.0.0.1"
ALLOWED = AccessControlEntry(ALICE, "*", READ, AclPermissionType.ALLOW)


def literal(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, LITERAL, name)


def prefixed(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, PREFIXED, name)


def authorizer(*patterns: ResourcePattern) -> AclAuthorizer:
    """Alice may read what matches the patterns."""
    made = AclAuthorizer((), allow_everyone_if_no_acl_found=False)
    for pattern in patterns:
        made.put(pattern, [ALLOWED])
    return made


def may_read(made: Authorizer, name: str) -> bool:
    return made.allows(ALICE, HOST, READ, TOPIC, name)


def test_a_change_is_seen_by_the_next_question_and_counted() -> None:
    made = authorizer()
    assert not may_read(made, "t")
    assert not made.allows_some(ALICE, HOST, READ, TOPIC)
    assert made.put(literal("t"), [ALLOWED])
    assert may_read(made, "t")
    assert made.allows_some(ALICE, HOST, READ, TOPIC)
    changes = made.changes
    assert not made.put(literal("t"), [ALLOWED])
    assert made.changes == changes
    assert made.put(literal("t"), [])
    assert not may_read(made, "t")
    assert not made.allows_some(ALICE, HOST, READ, TOPIC)
    assert made.changes == changes + 1
    assert made.acls == {}


def test_everyone_is_allowed_again_when_no_acl_matches_the_resource_any_more() -> None:
    made = AclAuthorizer((), allow_everyone_if_no_acl_found=True)
    made.put(prefixed("secret"), [ALLOWED._replace(principal="User:bob")])
    assert not may_read(made, "secrets")
    made.put(prefixed("secret"), [])
    assert may_read(made, "secrets")


def test_remembered_decisions_are_bounded_in_number_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_authorizer, "MOST_DECISIONS", 100)
    monkeypatch.setattr(acl_authorizer, "MOST_CHARACTERS", 10_000)
    made = authorizer(prefixed("a"))
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
    made = authorizer(*(prefixed("x" * length) for length in range(1, 250)))
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

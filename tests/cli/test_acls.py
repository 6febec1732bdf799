"""`odradek acls`: what its options mean, and what it says of a broker without an authorizer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest

from odradek.cli.__main__ import build_parser
from odradek.cli.acl_options import filters_to_list, filters_to_remove, new_acls
from odradek.cli.acls import COLUMNS
from odradek.cli.errors import CommandError
from odradek.clients.admin.acls import Acl, AclFilter
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from odradek.testing import BrokerThread
from tests.cli.conftest import Odradek

ALICE = ("--allow-principal", "User:alice")
PRODUCER = [("TOPIC", "t", each) for each in ("WRITE", "DESCRIBE", "CREATE")]
CONSUMER = [("TOPIC", "t", "READ"), ("TOPIC", "t", "DESCRIBE"), ("GROUP", "g", "READ")]


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser("acls").parse_args(["acls", *arguments])


def added(*arguments: str) -> list[Acl]:
    return new_acls(parsed("add", *arguments))


@pytest.mark.parametrize(
    ("options", "entries"),
    [
        (["--topic", "t"], [("TOPIC", "t", "ALL")]),
        (["--topic", "t", "--operation", "read", "--operation", "AlterConfigs"],
         [("TOPIC", "t", "READ"), ("TOPIC", "t", "ALTER_CONFIGS")]),
        (["--cluster", "--operation", "ClusterAction"], [("CLUSTER", "kafka-cluster", "CLUSTER_ACTION")]),
        (["--user-principal", "User:bob", "--operation", "CreateTokens"], [("USER", "User:bob", "CREATE_TOKENS")]),
        (["--delegation-token", "d", "--operation", "Describe"], [("DELEGATION_TOKEN", "d", "DESCRIBE")]),
        (["--topic", "t", "--producer"], PRODUCER),
        (["--topic", "t", "--producer", "--idempotent"], [*PRODUCER, ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE")]),
        (["--topic", "t", "--producer", "--transactional-id", "x"],
         [*PRODUCER, ("TRANSACTIONAL_ID", "x", "WRITE"), ("TRANSACTIONAL_ID", "x", "DESCRIBE")]),
        (["--topic", "t", "--group", "g", "--consumer"], CONSUMER),
        (["--topic", "t", "--group", "g", "--consumer", "--producer"], [*PRODUCER, CONSUMER[0], CONSUMER[2]]),
    ],
)  # fmt: skip
def test_options_mean_what_they_mean_for_kafka_acls(options: list[str], entries: list[tuple[str, str, str]]) -> None:
    found = added(*ALICE, *options)
    assert [(each.resource_type.name, each.name, each.operation.name) for each in found] == entries
    assert {(each.pattern_type.name, each.principal, each.host, each.permission.name) for each in found} == {
        ("LITERAL", "User:alice", "*", "ALLOW")
    }


def test_each_principal_has_each_host_and_operation() -> None:
    found = added(
        "--allow-principal", "User:a", "--allow-principal", "User:b", "--allow-host", "1.1.1.1", "--allow-host", "::1",
        "--deny-principal", "User:*", "--topic", "t.", "--resource-pattern-type", "prefixed", "--operation", "Read",
    )  # fmt: skip
    allowed = {(each.principal, each.host) for each in found if each.permission is AclPermissionType.ALLOW}
    assert allowed == {(user, host) for user in ("User:a", "User:b") for host in ("1.1.1.1", "::1")}
    denied = [each for each in found if each.permission is AclPermissionType.DENY]
    assert [(each.principal, each.host) for each in denied] == [("User:*", "*")]
    assert {each.pattern_type for each in found} == {AclPatternType.PREFIXED}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--topic", "t"], "say who"),
        ([*ALICE], "name a resource"),
        ([*ALICE, "--group", "g", "--operation", "Alter"], "Group has no operation Alter, only Read, Delete, Describe"),
        ([*ALICE, "--topic", "t", "--deny-host", "1.1.1.1"], "--deny-host needs --deny-principal"),
        (["--deny-principal", "User:a", "--topic", "t", "--allow-host", "h"], "--allow-host needs --allow-principal"),
        ([*ALICE, "--group", "g", "--producer"], "--producer needs --topic"),
        ([*ALICE, "--topic", "t", "--consumer"], "--consumer needs --topic and --group"),
        ([*ALICE, "--topic", "t", "--cluster", "--producer"], "give nothing on Cluster"),
        ([*ALICE, "--topic", "t", "--producer", "--operation", "Read"], "go without --operation"),
        ([*ALICE, "--topic", "t", "--idempotent"], "--idempotent needs --producer"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        added(*options)


@pytest.mark.parametrize(
    "option", [("--allow-principal", "alice"), ("--operation", "Fly"), ("--resource-pattern-type", "match")]
)
def test_an_unknown_word_is_a_wrong_argument(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("add", *option)
    assert option[1].lower() in capsys.readouterr().err.lower().partition(": error: ")[2]


def test_what_add_adds_remove_removes() -> None:
    options = (*ALICE, "--topic", "t", "--producer", "--idempotent")
    assert filters_to_remove(parsed("remove", *options)) == [AclFilter(*acl) for acl in added(*options)]


def test_without_a_principal_all_rules_of_a_resource_are_removed() -> None:
    assert filters_to_remove(parsed("remove", "--topic", "t", "--resource-pattern-type", "MATCH")) == [
        AclFilter(AclResourceType.TOPIC, "t", AclPatternType.MATCH)
    ]
    for option in (("--operation", "Read"), ("--producer",)):
        with pytest.raises(CommandError, match="say whose"):
            filters_to_remove(parsed("remove", "--topic", "t", *option))
    with pytest.raises(CommandError, match="name a resource"):
        filters_to_remove(parsed("remove"))


def test_rules_are_listed_by_resource_and_principal() -> None:
    assert filters_to_list(parsed("list")) == [AclFilter()]
    two = ("--principal", "User:a", "--principal", "User:b", "--topic", "t")
    assert filters_to_list(parsed("list", *two)) == [
        AclFilter(AclResourceType.TOPIC, "t", AclPatternType.LITERAL, principal=who) for who in ("User:a", "User:b")
    ]
    assert filters_to_list(parsed("list", "--principal", "User:a")) == [AclFilter(principal="User:a")]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with BrokerThread() as broker:
        yield broker.bootstrap


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["add", *ALICE, "--topic", "t"], ["remove", "--topic", "t"], ["remove", "--topic", "t", "--dry-run"]],
)
def test_a_cluster_without_an_authorizer_says_so(bootstrap: str, run_odradek: Odradek, arguments: list[str]) -> None:
    status, out, err = run_odradek("acls", *arguments, "--bootstrap-server", bootstrap)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("odradek: SECURITY_DISABLED: There is no authorizer")


def test_json_has_the_columns_as_names(run_odradek: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    acl = Acl(
        AclResourceType.TRANSACTIONAL_ID,
        "x",
        AclPatternType.PREFIXED,
        "User:a",
        "*",
        AclOperation.DESCRIBE_CONFIGS,
        AclPermissionType.DENY,
    )
    monkeypatch.setattr("odradek.cli.acls._with_acls", lambda arguments, work: [acl])
    out = run_odradek("acls", "list", "--json")[1]
    values = ["TransactionalId", "x", "Prefixed", "Deny", "User:a", "*", "DescribeConfigs"]
    assert json.loads(out) == [dict(zip(map(str.lower, COLUMNS), values, strict=True))]
    assert run_odradek("acls", "list")[1].splitlines()[1].split() == values

"""`odradek acls`: lists, adds and removes access rules, with the options of kafka-acls."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from odradek.cli.acl_options import (
    add_entries,
    add_resources,
    filters_to_list,
    filters_to_remove,
    new_acls,
    principal,
    shown,
)
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, command, with_admin
from odradek.cli.tables import print_table
from odradek.protocol.wire_codes import AclPatternType

if TYPE_CHECKING:
    from odradek.clients.admin.acls import Acl, AclAdmin

T = TypeVar("T")

EXAMPLES = """  odradek acls add --allow-principal User:alice --producer --topic orders
  odradek acls add --allow-principal User:bob --consumer --topic orders --group readers
  odradek acls add --allow-principal User:carol --operation Read --topic sales. --resource-pattern-type prefixed
  odradek acls list --topic orders
  odradek acls remove --allow-principal User:alice --producer --topic orders
"""
COLUMNS = ("RESOURCE", "NAME", "PATTERN", "PERMISSION", "PRINCIPAL", "HOST", "OPERATION")
OF_ACLS = (AclPatternType.LITERAL, AclPatternType.PREFIXED)
OF_FILTERS = (*OF_ACLS, AclPatternType.ANY, AclPatternType.MATCH)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `acls` and its actions."""
    parser = command(subparsers, "acls", "list, add and remove access rules", _help, examples=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_add(actions)
    _add_remove(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("acls needs an action: list, add or remove")


def _with_acls(arguments: argparse.Namespace, work: Callable[[AclAdmin], Awaitable[T]]) -> T:
    from odradek.clients.admin.acls import AclAdmin

    return with_admin(arguments, lambda admin: work(AclAdmin(admin)))


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "List the rules of the given resources, or of all. With --resource-pattern-type match, a name selects\n"
    )
    description += "every rule that concerns it: literal, prefixed and *."
    parser = command(actions, "list", "list access rules", list_acls, description=description)
    add_resources(parser, OF_FILTERS)
    parser.add_argument(
        "--principal",
        action="append",
        type=principal,
        metavar="TYPE:NAME",
        help="only its own rules; may be repeated",
    )
    _add_output(parser)


def list_acls(arguments: argparse.Namespace) -> None:
    """Prints rules."""
    _print(_with_acls(arguments, lambda admin: admin.acls(filters_to_list(arguments))), arguments)


def _add_add(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "".join(line + "\n" for line in EXAMPLES.splitlines() if " add " in line)
    parser = command(actions, "add", "add access rules", add, examples=examples)
    add_resources(parser, OF_ACLS)
    add_entries(parser)
    _add_output(parser)


def add(arguments: argparse.Namespace) -> None:
    """Adds rules, and prints them."""
    acls = new_acls(arguments)
    _with_acls(arguments, lambda admin: admin.create(acls))
    _print(acls, arguments)


def _add_remove(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Remove the rules that `add` with the same options adds; without a principal, all of the resources."
    examples = "  odradek acls remove --topic orders --dry-run\n  odradek acls remove --topic orders\n"
    parser = command(actions, "remove", "remove access rules", remove, description=description, examples=examples)
    add_resources(parser, OF_FILTERS)
    add_entries(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    _add_output(parser)


def remove(arguments: argparse.Namespace) -> None:
    """Removes rules, and prints those that were there."""
    filters = filters_to_remove(arguments)
    if arguments.dry_run:
        _print(_with_acls(arguments, lambda admin: admin.acls(filters)), arguments)
    else:
        _print(_with_acls(arguments, lambda admin: admin.delete(filters)), arguments)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON array of rules")
    add_bootstrap_server(parser)


def _print(acls: Iterable[Acl], arguments: argparse.Namespace) -> None:
    rows = [
        [
            shown(each.resource_type),
            each.name,
            shown(each.pattern_type),
            shown(each.permission),
            each.principal,
            each.host,
            shown(each.operation),
        ]
        for each in acls
    ]
    if arguments.json:
        print(json.dumps([dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows], indent=2))
        return
    print_table(COLUMNS, rows)

"""`odradek groups`: list, describe and delete consumer groups, and move their offsets."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.logging.printable import printable
from odradek.cli.errors import CommandError
from odradek.cli.group_reset import ResetTo, add_reset_options, new_offsets, reset_of, scope_of
from odradek.cli.options import add_bootstrap_server, command, delete_each, with_admin
from odradek.cli.tables import NOTHING, print_table

if TYPE_CHECKING:
    from odradek.clients.admin.described_groups import DescribedGroup
    from odradek.clients.admin.groups import GroupAdmin
    from odradek.protocol.topic_partition import TopicPartition

T = TypeVar("T")

EXAMPLES = """  odradek groups list
  odradek groups describe billing
  odradek groups reset-offsets billing --topic orders --to-earliest --execute
  odradek groups delete billing
"""
DEAD, EMPTY = "Dead", "Empty"
OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
MEMBER_COLUMNS = (
    "GROUP",
    "CONSUMER-ID",
    "GROUP-INSTANCE-ID",
    "HOST",
    "CLIENT-ID",
    "#PARTITIONS",
    "ASSIGNMENT",
    "MEMBER-TYPE",
    "EPOCH",
    "GIVES-UP",
    "WAITS-FOR",
)
STATE_COLUMNS = (
    "GROUP",
    "COORDINATOR",
    "ASSIGNMENT-STRATEGY",
    "STATE",
    "#MEMBERS",
    "TYPE",
    "GROUP-EPOCH",
    "TARGET-EPOCH",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `groups` and its actions."""
    parser = command(subparsers, "groups", "list, describe and delete groups, move offsets", _help, examples=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_describe(actions)
    _add_reset_offsets(actions)
    _add_delete(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("groups needs an action: list, describe, reset-offsets or delete")


def _with_groups(arguments: argparse.Namespace, work: Callable[[GroupAdmin], Awaitable[T]]) -> T:
    from odradek.clients.admin.groups import GroupAdmin

    return with_admin(arguments, lambda admin: work(GroupAdmin(admin)))


# list


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek groups list\n  odradek groups list --state Stable --state Empty --json\n"
    parser = command(actions, "list", "list groups, their states and types", list_groups, examples=examples)
    parser.add_argument("--state", action="append", default=[], metavar="STATE", help="only these; may be repeated")
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        dest="types",
        metavar="TYPE",
        help="only these, such as classic or consumer; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_bootstrap_server(parser)


def list_groups(arguments: argparse.Namespace) -> None:
    """Prints a line for each group."""
    found = _with_groups(arguments, lambda admin: admin.list_groups(arguments.state, arguments.types))
    if arguments.json:
        print(json.dumps([group._asdict() for group in found], indent=2))
        return
    for group in found:
        values = (group.group_id, group.state, group.protocol_type or NOTHING, group.group_type or NOTHING)
        print("\t".join(map(printable, values)))


# describe


def _add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = (
        "  odradek groups describe billing\n"
        "  odradek groups describe billing shipping --members\n"
        "  odradek groups describe --all --json\n"
    )
    description = (
        "Show groups: by default each partition with its committed offset, its lag and its consumer.\n"
        "--members shows of a consumer group also what a member must give up, and what it waits for and from whom."
    )
    parser = command(actions, "describe", "describe groups", describe, description=description, examples=examples)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--all", action="store_true", help="all groups")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="show the members and their partitions")
    what.add_argument("--state", action="store_true", help="show state, coordinator and number of members")
    what.add_argument("--json", action="store_true", help="print all of it as a JSON array")
    add_bootstrap_server(parser)


def describe(arguments: argparse.Namespace) -> None:
    """Prints offsets and lag, members or states of groups."""
    if bool(arguments.groups) == arguments.all:
        raise CommandError("groups describe needs the groups' names, or --all")
    described = _with_groups(arguments, lambda admin: _describe(admin, arguments.groups))
    if arguments.json:
        print(json.dumps(described, indent=2))
    elif arguments.members:
        print_table(MEMBER_COLUMNS, [row for group in described for row in _member_rows(group)])
    elif arguments.state:
        print_table(STATE_COLUMNS, [_state_row(group) for group in described])
    else:
        print_table(OFFSET_COLUMNS, [row for group in described for row in _offset_rows(group)])


async def _describe(admin: GroupAdmin, names: list[str]) -> list[dict[str, Any]]:
    groups = names or [group.group_id for group in await admin.list_groups()]
    return [await _describe_one(admin, name) for name in groups]


async def _describe_one(admin: GroupAdmin, name: str) -> dict[str, Any]:
    from odradek.clients.admin.groups import LATEST

    group = await admin.describe(name)
    if group.state == DEAD:
        raise CommandError(f"there is no group '{name}'")
    committed = await admin.committed(name)
    owners = group.owners
    keys = sorted({*committed, *owners})
    ends = await admin.offsets_at(keys, LATEST)
    return {
        "group_id": name,
        "state": group.state,
        "coordinator": group.coordinator,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "group_type": group.group_type,
        "group_epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "partitions": [_partition(key, committed, ends, owners) for key in keys],
        "members": _members(group),
    }


def _partition(
    key: TopicPartition, committed: dict[TopicPartition, int], ends: dict[TopicPartition, int], owners: dict[Any, Any]
) -> dict[str, Any]:
    offset, end, owner = committed.get(key), ends.get(key), owners.get(key)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "current_offset": offset,
        "log_end_offset": end,
        "lag": None if offset is None or end is None else end - offset,
        "consumer_id": None if owner is None else owner.member_id,
        "host": None if owner is None else owner.host,
        "client_id": None if owner is None else owner.client_id,
    }


def _members(group: DescribedGroup) -> list[dict[str, Any]]:
    owners = group.owners
    return [
        {
            "consumer_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "partitions": _texts(member.partitions),
            "member_type": member.member_type,
            "epoch": member.epoch,
            "target": _texts(member.target),
            "gives_up": _texts(member.gives_up),
            "waits_for": [
                {"partition": str(key), "owner": None if key not in owners else owners[key].member_id}
                for key in member.waits_for
            ],
            "subscribed_topics": member.subscribed_topics,
            "subscribed_regex": member.subscribed_regex,
        }
        for member in group.members
    ]


def _texts(partitions: list[TopicPartition] | None) -> list[str] | None:
    return None if partitions is None else [str(key) for key in partitions]


def _offset_rows(group: dict[str, Any]) -> list[list[Any]]:
    return [[group["group_id"], *partition.values()] for partition in group["partitions"]]


def _member_rows(group: dict[str, Any]) -> list[list[Any]]:
    return [
        [
            group["group_id"],
            *(member[name] for name in ("consumer_id", "group_instance_id", "host", "client_id")),
            None if member["partitions"] is None else len(member["partitions"]),
            _joined(member["partitions"]),
            member["member_type"],
            member["epoch"],
            _joined(member["gives_up"]),
            _joined(map(_awaited, member["waits_for"])),
        ]
        for member in group["members"]
    ]


def _joined(texts: Iterable[str] | None) -> str | None:
    return ",".join(texts or ()) or None


def _awaited(waits: dict[str, Any]) -> str:
    """A partition that a member waits for; `of` names the member that still has it."""
    return f"{waits['partition']} of {waits['owner']}" if waits["owner"] else waits["partition"]


def _state_row(group: dict[str, Any]) -> list[Any]:
    return [
        group["group_id"],
        group["coordinator"],
        group["protocol"] or None,
        group["state"],
        len(group["members"]),
        group["group_type"],
        group["group_epoch"],
        group["target_epoch"],
    ]


# reset-offsets


def _add_reset_offsets(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = (
        "  odradek groups reset-offsets billing --all-topics --to-latest\n"
        "  odradek groups reset-offsets billing --topic orders:0,2 --shift-by -100 --execute\n"
        "  odradek groups reset-offsets billing --topic orders --to-datetime 2026-03-01T00:00:00 --execute\n"
    )
    description = (
        "Move the committed offsets of a group that has no members. Without --execute, only show the new offsets.\n"
        "An offset outside the log becomes the log's nearest end."
    )
    parser = command(
        actions, "reset-offsets", "move a group's offsets", reset_offsets, description=description, examples=examples
    )
    parser.add_argument("group", metavar="GROUP")
    add_reset_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_bootstrap_server(parser)


def reset_offsets(arguments: argparse.Namespace) -> None:
    """Prints the new offset of each partition, and commits them with --execute."""
    reset = reset_of(arguments)
    found = _with_groups(arguments, lambda admin: _reset_offsets(admin, arguments, reset))
    rows = [[arguments.group, key.topic, key.partition, offset] for key, offset in found.items()]
    if arguments.json:
        names = ("group_id", "topic", "partition", "new_offset")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    print_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)
    if not arguments.execute:
        print("nothing changed; --execute commits the offsets")


async def _reset_offsets(admin: GroupAdmin, arguments: argparse.Namespace, reset: ResetTo) -> dict[TopicPartition, int]:
    state = (await admin.describe(arguments.group)).state
    if state not in (DEAD, EMPTY):
        raise CommandError(f"the group '{arguments.group}' has members; its state is {state}")
    partitions = await scope_of(admin, arguments)
    found = await new_offsets(admin, arguments.group, partitions, reset)
    if arguments.execute:
        await admin.commit(arguments.group, found)
    return found


# delete


def _add_delete(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek groups delete billing shipping\n"
    parser = command(actions, "delete", "delete groups and their offsets", delete, examples=examples)
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--if-exists", action="store_true", help="ignore groups that do not exist")
    add_bootstrap_server(parser)


def delete(arguments: argparse.Namespace) -> None:
    """Deletes groups that have no members."""
    from odradek.protocol.errors import ErrorCode

    unknown = ErrorCode.GROUP_ID_NOT_FOUND
    _with_groups(arguments, lambda admin: delete_each(arguments.groups, admin.delete, unknown, arguments.if_exists))

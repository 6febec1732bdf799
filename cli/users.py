"""`odradek users`: lists the users that log in by SCRAM, sets and removes their passwords."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.logging.printable import printable
from odradek.broker.security.sasl.scram import LEAST_ITERATIONS, MECHANISMS, MOST_ITERATIONS
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, command, positive, with_admin
from odradek.cli.tables import print_table

if TYPE_CHECKING:
    from odradek.clients.admin.users import UserAdmin

T = TypeVar("T")

EXAMPLES = """  odradek users list
  odradek users set alice
  odradek users set alice --password-file /run/secrets/alice --mechanism SCRAM-SHA-512
  odradek users remove alice
"""
DEFAULT_MECHANISM = "SCRAM-SHA-256"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `users` and its actions."""
    summary = "list users, set and remove their passwords"
    parser = command(subparsers, "users", summary, _help, examples=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_set(actions)
    _add_remove(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("users needs an action: list, set or remove")


def _with_users(arguments: argparse.Namespace, work: Callable[[UserAdmin], Awaitable[T]]) -> T:
    from random import SystemRandom

    from odradek.clients.admin.users import UserAdmin

    return with_admin(arguments, lambda admin: work(UserAdmin(admin, SystemRandom())))


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "List the users that have a password for SCRAM. Users of PLAIN are in the settings of the brokers."
    parser = command(actions, "list", "list users and their mechanisms", list_users, description=description)
    parser.add_argument("users", nargs="*", metavar="USER", help="default: all")
    parser.add_argument("--json", action="store_true", help="print a JSON object keyed by user")
    add_bootstrap_server(parser)


def list_users(arguments: argparse.Namespace) -> None:
    """Prints one line for each mechanism of each user."""
    found = _with_users(arguments, lambda admin: admin.users(arguments.users or None))
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    rows = [[name, *each] for name, iterations in found.items() for each in sorted(iterations.items())]
    print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


def _add_set(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "Set the password of a user, who need not exist yet. It is asked for on a terminal; otherwise it is the first\n"
        "line of stdin, or of --password-file. It is no argument, because other users of the machine see those.\n"
        "The password is salted before it is sent."
    )
    examples = "  odradek users set alice\n  odradek users set alice --password-file alice.password --iterations 8192\n"
    parser = command(actions, "set", "set a password", set_password, description=description, examples=examples)
    parser.add_argument("user", metavar="USER")
    _add_mechanism(parser, f"default: {DEFAULT_MECHANISM}")
    parser.add_argument("--password-file", metavar="FILE", help="a file whose first line is the password")
    parser.add_argument(
        "--iterations",
        type=positive,
        default=LEAST_ITERATIONS,
        metavar="N",
        help=f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} (default {LEAST_ITERATIONS})",
    )
    add_bootstrap_server(parser)


def _add_mechanism(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=tuple(MECHANISMS),
        metavar="NAME",
        help=f"{' or '.join(MECHANISMS)}; may be repeated ({default})",
    )


def set_password(arguments: argparse.Namespace) -> None:
    """Sets a password for each of the mechanisms."""
    password = _password(arguments)
    mechanisms = list(dict.fromkeys(arguments.mechanism or [DEFAULT_MECHANISM]))

    async def work(admin: UserAdmin) -> None:
        for each in mechanisms:
            await admin.set_password(arguments.user, password, each, arguments.iterations)

    _with_users(arguments, work)
    print(f"{printable(arguments.user)} has a password for {', '.join(mechanisms)}")


def _password(arguments: argparse.Namespace) -> str:
    if arguments.password_file is not None:
        password = _first_line_of(arguments.password_file)
    elif sys.stdin.isatty():
        password = _asked_for(arguments.user)
    else:
        password = sys.stdin.readline()
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise CommandError("the password is empty")
    return password


def _first_line_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not UTF-8") from None


def _asked_for(user: str) -> str:
    from getpass import getpass

    password = getpass(f"New password of {user}: ")
    if getpass("Once more: ") != password:
        raise CommandError("the passwords differ")
    return password


def _add_remove(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = "Remove the password of a user, who cannot log in any more. Connections that are open stay open."
    parser = command(actions, "remove", "remove a password", remove, description=description)
    parser.add_argument("user", metavar="USER")
    _add_mechanism(parser, "default: all that the user has")
    add_bootstrap_server(parser)


def remove(arguments: argparse.Namespace) -> None:
    """Removes a user's password for each of the mechanisms."""

    async def work(admin: UserAdmin) -> list[str]:
        mechanisms = arguments.mechanism or sorted((await admin.users([arguments.user]))[arguments.user])
        for each in dict.fromkeys(mechanisms):
            await admin.remove(arguments.user, each)
        return list(dict.fromkeys(mechanisms))

    mechanisms = _with_users(arguments, work)
    print(f"{printable(arguments.user)} has no password any more for {', '.join(mechanisms)}")

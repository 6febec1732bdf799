"""Options that several commands share, and the admin client that they configure."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.cli.errors import CommandError
from odradek.cli.help_format import HelpFormat

if TYPE_CHECKING:
    from odradek.clients.admin.client import AdminClient
    from odradek.clients.admin.client_properties import ClientSecurity
    from odradek.protocol.errors import ErrorCode

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def add_bootstrap_server(parser: argparse.ArgumentParser) -> None:
    """Adds --bootstrap-server, --command-config and --timeout-ms."""
    parser.add_argument(
        "--bootstrap-server",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"one broker or several, separated by commas (default {DEFAULT_BOOTSTRAP})",
    )
    add_command_config(parser)
    parser.add_argument(
        "--timeout-ms",
        type=positive,
        default=10_000,
        metavar="MS",
        help="how long to wait for a response (default 10000)",
    )


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """Adds --command-config, which `security_of` reads."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a client's property file with Kafka's names: security.protocol, ssl.*, sasl.*, config.providers",
    )


def with_admin(arguments: argparse.Namespace, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Runs `work` with an admin client of the selected broker."""
    from random import SystemRandom

    from odradek.clients.admin.client import AdminClient
    from odradek.clients.network_client import NetworkClient
    from odradek.clients.network_errors import Disconnected

    security = security_of(arguments)
    connect = NetworkClient.connect if security is None else security.connect(SystemRandom())
    try:
        admin = AdminClient(arguments.bootstrap_server, timeout_ms=arguments.timeout_ms, connect=connect)
    except ValueError as error:
        raise CommandError(f"--bootstrap-server: {error}") from error

    async def run() -> T:
        async with admin:
            return await work(admin)

    try:
        return asyncio.run(run())
    except Disconnected as error:
        raise CommandError(f"{error}{_hint(str(error), security)}") from error


def _hint(error: str, security: ClientSecurity | None) -> str:
    """What may be wrong if a broker closes the connection and gives no reason: it cannot, to a client that does not
    speak as its listener does.
    """
    if not error.endswith("closed the connection"):
        return ""
    if security is None:
        return "; if its listener has TLS or a login, say so in a file for --command-config"
    return f"; its listener may need another security.protocol than {security.protocol}"


def security_of(arguments: argparse.Namespace) -> ClientSecurity | None:
    """Returns what --command-config says about connections, None without it."""
    if arguments.command_config is None:
        return None
    from odradek.clients.admin.client_properties import security_of_file
    from odradek.storage.files import OsFiles

    return security_of_file(arguments.command_config, OsFiles(), os.environ)


def kafka_python_security(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the same for kafka-python, as its arguments."""
    security = security_of(arguments)
    return {} if security is None else security.for_kafka_python()


async def delete_each(
    names: Iterable[str], delete: Callable[[str], Awaitable[None]], unknown: ErrorCode, if_exists: bool
) -> None:
    """Deletes and reports one name after another; with `if_exists`, an `unknown` error is reported and skipped."""
    from odradek.protocol.errors import ProtocolError

    for name in names:
        try:
            await delete(name)
        except ProtocolError as error:
            if error.code != unknown or not if_exists:
                raise
            print(f"{name} does not exist")
            continue
        print(f"{name} deleted")


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Returns NAME=VALUE texts as a dict."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {text}: expected NAME=VALUE")
        found[name] = value
    return found


def positive(text: str) -> int:
    """argparse type: a whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    """argparse type: a whole number, 0 or above."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def unescaped(text: str) -> str:
    r"""argparse type: replaces the escapes \t, \n, \r, \0 and \\."""
    escapes = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}
    parts = text.split("\\\\")
    for index, part in enumerate(parts):
        for letter, character in escapes.items():
            if letter != "\\":
                part = part.replace(f"\\{letter}", character)
        parts[index] = part
    return "\\".join(parts)


def separator(text: str) -> str:
    """argparse type: as `unescaped`, but not empty."""
    found = unescaped(text)
    if not found:
        raise argparse.ArgumentTypeError("a separator cannot be empty")
    return found


def command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int | None],
    *,
    description: str | None = None,
    examples: str = "",
) -> argparse.ArgumentParser:
    """Adds and returns the parser of one command, whose help ends with `examples`."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=HelpFormat,
    )
    parser.set_defaults(run=run)
    return parser

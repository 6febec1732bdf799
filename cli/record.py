"""`odradek record`: a proxy for any Kafka cluster that records what passes."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import signal
import sys
from typing import TYPE_CHECKING

from odradek.cli.errors import CommandError
from odradek.cli.options import add_command_config, command, security_of

if TYPE_CHECKING:
    from odradek.clients.recording.addresses import Address
    from odradek.clients.recording.proxy import Proxy
    from odradek.clients.recording.streams import Dial

DESCRIPTION = """Record what clients and brokers say to each other, as a proxy between them, until it is interrupted.

Clients connect to --listen, without TLS. Each broker of the cluster gets a port of its own, and the responses name
these ports instead of the brokers' addresses. Passwords and other secrets are not recorded."""
EXAMPLES = """  odradek record --upstream kafka:9092 --to orders.rec
  odradek record --upstream kafka:9093 --command-config client.properties --to orders.rec --listen 127.0.0.1:9092
  odradek show orders.rec
"""
DEFAULT_LISTEN = "127.0.0.1:19092"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `record`."""
    parser = command(
        subparsers, "record", "record requests and responses", run, description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT", help="brokers of the cluster")
    parser.add_argument("--to", required=True, metavar="FILE", help="a new file")
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"where clients connect; port 0: a free one (default {DEFAULT_LISTEN})",
    )
    add_command_config(parser)


def run(arguments: argparse.Namespace) -> None:
    """Records until a signal."""
    asyncio.run(_record(arguments))


async def _record(arguments: argparse.Namespace) -> None:
    from odradek.broker.logging.quiet_logs import QUIET_LOGS
    from odradek.clients.recording.addresses import text_of
    from odradek.clients.recording.proxy import recording_proxy
    from odradek.storage.files import OsFiles
    from odradek.timer import SystemClock

    upstream, listen = addresses("--upstream", arguments.upstream), listen_address(arguments.listen)
    dial = dial_of(arguments)
    if dial.login is not None and not _is_loopback(listen[0]):
        raise CommandError(
            f"--listen {arguments.listen} is not a loopback address: every client there would have the rights of "
            f"{dial.login.username}, whose login is in --command-config"
        )
    opened = recording_proxy(upstream, listen, arguments.to, dial, OsFiles(), SystemClock())
    try:
        with QUIET_LOGS.shown():
            async with opened as proxy:
                print(f"ready {text_of(proxy.address)}", flush=True)
                await _until_signal(proxy)
    except FileExistsError:
        raise CommandError(f"{arguments.to} exists already: a recording needs a new file") from None
    print(f"{arguments.to}: {proxy.recorder.summary}", file=sys.stderr)


async def _until_signal(proxy: Proxy) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.ensure_future(stop.wait())
    running = asyncio.ensure_future(proxy.run())
    try:
        await asyncio.wait({stopping, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
    finally:
        stopping.cancel()
        running.cancel()


def addresses(option: str, text: str) -> list[Address]:
    """Parses HOST:PORT,HOST:PORT... of an option."""
    from odradek.clients.admin.client import parse_addresses

    try:
        return parse_addresses(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from error


def listen_address(text: str) -> Address:
    """Parses --listen, whose port may be 0."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"--listen: {text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def dial_of(arguments: argparse.Namespace) -> Dial:
    """Returns how --command-config says to connect."""
    from random import SystemRandom

    from odradek.clients.recording.streams import Dial

    security = security_of(arguments)
    return Dial() if security is None else Dial.secured(security.tls, security.login, SystemRandom())


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""`odradek health`: whether the broker on this machine serves clients; the health check of the image.

    (A) If something answers on the metrics port, its /health decides.
    (B) Otherwise, or with --bootstrap-server, a listener must answer. It is asked only what no listener wants a login
        for: ApiVersions, or over TLS the handshake. Its certificate is not verified, since nothing is sent to it. A
        listener that refuses the handshake, because it wants a certificate of its clients, has answered.

For (B), a listener with TLS logs a client without TLS each time.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import ssl

from odradek.cli.errors import CommandError
from odradek.cli.options import DEFAULT_BOOTSTRAP, command, positive

METRICS_PORT = 9404
DESCRIPTION = """Ask the broker on this machine whether it serves clients, without a login. Status 0: it does.

The metrics port is asked first. If nothing answers there, a listener is."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `health`."""
    examples = "  odradek health\n  odradek health --bootstrap-server 127.0.0.1:29092\n"
    summary = "say whether a broker serves clients"
    parser = command(subparsers, "health", summary, run, description=DESCRIPTION, examples=examples)
    parser.add_argument("--metrics-port", type=positive, default=METRICS_PORT, metavar="N", help="default 9404")
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"ask this listener, and no metrics port (default: {DEFAULT_BOOTSTRAP}, if there is no metrics port)",
    )
    parser.add_argument("--timeout-ms", type=positive, default=5000, metavar="MS", help="default 5000")


def run(arguments: argparse.Namespace) -> None:
    """Prints what answered. Raises CommandError if the broker does not serve clients."""
    from odradek.clients.admin.client import parse_addresses

    asked = arguments.bootstrap_server
    status = None if asked else _status_of_metrics(arguments.metrics_port, arguments.timeout_ms / 1000)
    if status is not None:
        if status != "up":
            raise CommandError(f"port {arguments.metrics_port}: {status}")
        print(f"up, by port {arguments.metrics_port}")
        return
    try:
        address = parse_addresses(asked or DEFAULT_BOOTSTRAP)[0]
    except ValueError as error:
        raise CommandError(f"--bootstrap-server: {error}") from error
    asyncio.run(_ask_listener(*address, arguments.timeout_ms))
    print(f"up, by {asked or DEFAULT_BOOTSTRAP}")


def _status_of_metrics(port: int, timeout_s: float) -> str | None:
    """Returns the status that /health has (A), None if nothing serves it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", "/health")
        status = json.loads(connection.getresponse().read())["status"]
    except (ConnectionError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    except TimeoutError:
        return "no answer"
    finally:
        connection.close()
    return str(status)


async def _ask_listener(host: str, port: int, timeout_ms: int) -> None:
    """Returns if the listener answers (B). Raises NetworkError, CommandError."""
    from odradek.clients.network_client import NetworkClient
    from odradek.clients.network_errors import Disconnected

    try:
        async with await NetworkClient.connect(host, port, timeout_ms=timeout_ms):
            return
    except Disconnected as error:
        if not await _answers_tls(host, port, timeout_ms):
            raise CommandError(f"{error}, and speaks no TLS") from error


async def _answers_tls(host: str, port: int, timeout_ms: int) -> bool:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, writer = await asyncio.open_connection(host, port, ssl=_unverified(), server_hostname=host)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

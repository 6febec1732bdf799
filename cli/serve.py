"""`odradek serve`, the same program as `python -m odradek.broker`; broker/serve.py is the process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker import serve
from odradek.cli.options import command

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig
    from odradek.testing.control import Control

DESCRIPTION = """Run a broker until it is stopped (SIGTERM or Ctrl-C).

When the broker accepts clients, it prints one line `ready HOST:PORT` to stdout (with --test-control after the line
`test-control URL TOKEN`). The log goes to stderr.
Without --config, the bundled single-node settings apply; with --config, only that file.
Flags override either."""

EXAMPLES = """  odradek serve
  odradek serve --port 0 --data-dir /var/lib/odradek
  odradek serve --config server.properties --set num.partitions=3 --metrics-port 9404
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `serve`."""
    add_arguments(command(subparsers, "serve", "run a broker", run, description=DESCRIPTION, examples=EXAMPLES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `odradek serve`."""
    serve.add_arguments(parser)
    parser.add_argument(
        "--test-control",
        type=serve.port_number,
        metavar="PORT",
        help="for tests: faults and requests over HTTP on this port of 127.0.0.1 (docs/testing/faults.md); prints the "
        "token that its clients need",
    )


def run(arguments: argparse.Namespace) -> int:
    port: int | None = arguments.test_control
    return serve.run(arguments, new_test_control=None if port is None else partial(_test_control, port=port))


def _test_control(config: BrokerConfig, port: int) -> Control:
    """Only a broker under test imports it. Raises ConfigError."""
    from odradek.testing.control import Control

    return Control(config, port)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m odradek.broker", description="A Kafka-compatible message broker.")
    add_arguments(parser)
    return run(parser.parse_args(argv))

"""`odradek serve`, the same program as `python -m odradek.broker`; all of it is in `odradek.broker.serve`."""

from __future__ import annotations

import argparse

from odradek.broker.serve import add_arguments, run
from odradek.cli.options import command

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

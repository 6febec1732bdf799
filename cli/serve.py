"""`odradek serve` and `python -m odradek.broker` are one program; `odradek.broker.serve` is all of it."""

from __future__ import annotations

import argparse

from odradek.broker.serve import add_arguments, run
from odradek.cli.options import command

DESCRIPTION = """Run a broker until it is told to stop (SIGTERM or Ctrl-C).

When clients are served, one line `ready HOST:PORT` goes to stdout. The log goes to stderr.
Without --config the single-node settings that come with Odradek count; with it only that file.
Flags override either."""

EXAMPLES = """  odradek serve
  odradek serve --port 0 --data-dir /var/lib/odradek
  odradek serve --config server.properties --set num.partitions=3 --metrics-port 9404
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `serve`."""
    add_arguments(command(subparsers, "serve", "run a broker", run, description=DESCRIPTION, examples=EXAMPLES))

"""`odradek compare`: sends a recording to two clusters, and prints where their responses differ."""

from __future__ import annotations

import argparse

from odradek.cli.options import command
from odradek.cli.replay import STATUS, add_replay_options, run_against

DESCRIPTION = """Send the requests of a recording to two clusters, and print where their responses differ.

Ids, times and addresses are not compared. Both clusters should be in the same state, such as new and empty."""
EXAMPLES = "  odradek compare 127.0.0.1:9092 kafka:9092 orders.rec\n"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `compare`."""
    parser = command(
        subparsers,
        "compare",
        "send a recording to two clusters, and compare their responses",
        run,
        description=DESCRIPTION,
        examples=f"{EXAMPLES}\n{STATUS}",
    )
    parser.add_argument("one", metavar="HOST:PORT", help="a broker of one cluster")
    parser.add_argument("other", metavar="HOST:PORT", help="a broker of the other cluster")
    parser.add_argument("file", metavar="FILE")
    add_replay_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compares; returns the exit status."""
    return run_against(arguments, {arguments.one: arguments.one, arguments.other: arguments.other})

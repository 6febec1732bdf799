"""The `odradek` command: loads a subcommand's module and runs it. Its dependencies are imported only when it is called.

A subcommand is a module with `add_parser(subparsers)`, which sets `run` to a function from the parsed arguments to
the exit status. Any failure becomes one line on stderr and exit status 1; argparse reports wrong arguments with exit
status 2.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence

from odradek.cli.errors import CommandError
from odradek.cli.help_format import HelpFormat

COMMANDS = {
    "serve": "run a broker",
    "topics": "create, list, describe, alter and delete topics",
    "cluster": "show brokers, leaders and in-sync replicas",
    "configs": "describe and alter settings of topics and brokers",
    "groups": "list, describe and delete groups, move offsets",
    "features": "show features, raise and lower their levels",
    "users": "list users, set and remove their passwords",
    "acls": "list, add and remove access rules",
    "produce": "write lines from stdin to a topic",
    "consume": "print a topic's records",
    "health": "say whether a broker serves clients",
    "certificates": "make certificates for development",
    "record": "record requests and responses between clients and a cluster",
    "show": "print a recording, or frames in hexadecimal",
    "replay": "send a recording to a cluster, and compare the responses",
    "compare": "send a recording to two clusters, and compare their responses",
    "transactions": "list, describe and abort transactions",
    "dump-log": "print segments and indexes of a log",
    "pipeline": "load topics into lake tables with PySpark",
}
"""The subcommands and their texts in `--help`; the module's name has underscores for dashes."""

EXAMPLES = """examples:
  odradek serve --data-dir ./data
  odradek topics create orders --partitions 3
  echo hello | odradek produce orders
  odradek consume orders --from-beginning --max-messages 1

`odradek COMMAND --help` describes a command.
"""


def build_parser(command: str | None, *, alone: bool = False) -> argparse.ArgumentParser:
    """Returns the parser. It loads only the subcommand `command`; the others are names, and are left out if it is
    `alone`.
    """
    parser = argparse.ArgumentParser(
        prog="odradek",
        description="A Kafka-compatible message broker, and the tools around it.",
        epilog=EXAMPLES,
        formatter_class=HelpFormat,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        if name == command:
            importlib.import_module(f"odradek.cli.{name.replace('-', '_')}").add_parser(subparsers)
        elif not alone:
            subparsers.add_parser(name, help=summary)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((argument for argument in arguments if not argument.startswith("-")), None)
    gc.disable()  # nothing that is imported is garbage
    try:
        parser = build_parser(command, alone=command in COMMANDS and arguments[0] == command)
        parsed = parser.parse_args(arguments)
    finally:
        gc.enable()
    if parsed.version:
        from importlib.metadata import version

        print(f"odradek {version('odradek')}")
        return 0
    if parsed.command is None:
        parser.print_help()
        return 0
    return run(parsed)


def run(parsed: argparse.Namespace) -> int:
    """Runs a parsed command and turns failures into one line."""
    try:
        return int(parsed.run(parsed) or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("ODRADEK_DEBUG"):
            raise
        print(f"odradek: {describe(error)}", file=sys.stderr)
        return 1


def describe(error: Exception) -> str:
    """Returns one line about an error; if the error is not one of FORESEEN, the line names its type."""
    from odradek.broker.logging.printable import printable

    text = printable(" ".join(str(error).split()))
    kinds = {kind.__name__ for kind in type(error).__mro__}
    foreseen = isinstance(error, CommandError | OSError) or not FORESEEN.isdisjoint(kinds)
    return text if foreseen and text else f"{type(error).__name__}: {text} (ODRADEK_DEBUG=1 prints a traceback)"


FORESEEN = frozenset(
    {
        "CannotRecord",
        "ConfigError",
        "Disconnected",
        "LoginRefused",
        "MetaPropertiesError",
        "MetadataStoreError",
        "MigrationError",
        "NodeUnreachable",
        "PipelineError",
        "ProtocolError",
        "RecordingError",
        "RequestTimedOut",
        "StartError",
        "UnsupportedVersion",
    }
)
"""Exceptions whose message is written for users; by name, so that their modules need not be imported."""


if __name__ == "__main__":
    sys.exit(main())

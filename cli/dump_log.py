"""`odradek dump-log`: prints segments, indexes, snapshots and checkpoints of a log directory, without a broker."""

import argparse
import sys
from collections.abc import Sequence

from odradek.cli.help_format import HelpFormat
from odradek.storage.dump.coordinators import offsets_texts, plain_texts, transaction_texts
from odradek.storage.dump.files import NO_LIMIT, DumpOptions, dump_files
from odradek.storage.files import OsFiles

NAME = "dump-log"
_EPILOG = """\
files by their names: .log segments; .index and .timeindex (checked against the segment beside them); .txnindex;
.snapshot (producers); leader-epoch-checkpoint and the other checkpoints.

examples:
  odradek dump-log --print-data-log data/orders-0/00000000000000000000.log
  odradek dump-log --index-sanity-check data/orders-0/*.index data/orders-0/*.timeindex

The output is that of DumpLogSegments of Kafka 4.4. Exit status 1: a file is damaged or unreadable; 2: wrong arguments.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="*", metavar="FILE", help="files to print")
    parser.add_argument("--files", metavar="FILE,FILE...", help="files to print, in the format of Kafka's tool")
    parser.add_argument("--deep-iteration", action="store_true", help="print every record, not only the batches")
    parser.add_argument("--print-data-log", action="store_true", help="print keys and values too (deep)")
    parser.add_argument("--skip-record-metadata", action="store_true", help="print only a record's key and value")
    decoders = parser.add_mutually_exclusive_group()
    decoders.add_argument(
        "--offsets-decoder",
        dest="texts",
        action="store_const",
        const=offsets_texts,
        help="decode the records as those of __consumer_offsets (and print them)",
    )
    decoders.add_argument(
        "--transaction-log-decoder",
        dest="texts",
        action="store_const",
        const=transaction_texts,
        help="decode the records as those of __transaction_state (and print them)",
    )
    parser.add_argument(
        "--max-bytes", type=int, default=NO_LIMIT, metavar="N", help="read at most N bytes of each segment"
    )
    parser.add_argument(
        "--index-sanity-check", action="store_true", help="only report whether a broker would accept each index"
    )
    parser.add_argument("--verify-index-only", action="store_true", help="check indexes without printing their entries")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Adds `dump-log` to the subcommands; its `run(arguments)` returns the exit status."""
    parser = subparsers.add_parser(
        NAME,
        help="print the files of a log directory",
        description="Prints the files of a log directory, without a broker.",
        epilog=_EPILOG,
        formatter_class=HelpFormat,
    )
    add_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    paths = [*arguments.file, *(path.strip() for path in (arguments.files or "").split(",") if path.strip())]
    if not paths:
        print("odradek dump-log: needs at least one file", file=sys.stderr)
        return 2
    options = DumpOptions(
        deep_iteration=arguments.deep_iteration,
        print_data_log=arguments.print_data_log or arguments.texts is not None,
        index_sanity_check=arguments.index_sanity_check,
        verify_index_only=arguments.verify_index_only,
        skip_record_metadata=arguments.skip_record_metadata,
        max_bytes=arguments.max_bytes,
        texts=arguments.texts or plain_texts,
    )
    return 0 if dump_files(OsFiles(), paths, options, sys.stdout, sys.stderr) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `dump-log` without the `odradek` command; `argv` excludes the program's name."""
    parser = argparse.ArgumentParser(prog=f"odradek {NAME}", epilog=_EPILOG)
    parser.formatter_class = HelpFormat
    add_arguments(parser)
    return run(parser.parse_args(argv))

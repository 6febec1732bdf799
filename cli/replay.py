"""`odradek replay`: sends a recording to a cluster, and prints where its responses differ from the recorded ones."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from typing import TYPE_CHECKING, BinaryIO

from odradek.cli.errors import CommandError
from odradek.cli.options import add_command_config, command, positive
from odradek.cli.record import addresses, dial_of

if TYPE_CHECKING:
    from odradek.clients.recording.replay import Difference, Summary

DESCRIPTION = """Send the requests of a recording to a cluster, and print where its responses differ from the recorded.

Ids, times and addresses are not compared. The cluster should be in the state that the recorded one was in at the start,
such as new and empty."""
EXAMPLES = """  odradek replay orders.rec --against 127.0.0.1:9092
  odradek replay orders.rec --against 127.0.0.1:9092 --ignore 'ApiVersions .*'
"""
STATUS = "exit status: 0 no difference, 1 differences, 2 the recording or the cluster cannot be used"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `replay`."""
    parser = command(
        subparsers,
        "replay",
        "send a recording to a cluster, and compare the responses",
        run,
        description=DESCRIPTION,
        examples=f"{EXAMPLES}\n{STATUS}",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--against", required=True, metavar="HOST:PORT", help="a broker of the cluster")
    add_replay_options(parser)


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `replay` and `compare` share."""
    parser.add_argument("--as-timed", action="store_true", help="with the pauses of the recording")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="a regular expression for a whole place, as it is printed, whose differences are known; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print differences as JSON objects, one per line")
    parser.add_argument(
        "--timeout-ms",
        type=positive,
        default=10_000,
        metavar="MS",
        help="how long to wait for a response (default 10000)",
    )
    add_command_config(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replays; returns the exit status."""
    return run_against(arguments, {"recorded": None, arguments.against: arguments.against})


def run_against(arguments: argparse.Namespace, sides: dict[str, str | None]) -> int:
    """Compares two sides by their names: an address, or None for the recording itself. Returns the exit status."""
    from odradek.cli.__main__ import describe

    try:
        if len(sides) == 1:
            raise CommandError(f"{next(iter(sides))} is named twice: a cluster would be compared with itself")
        with open(arguments.file, "rb") as stream:
            summary, ignored = asyncio.run(_replay(arguments, sides, stream))
    except Exception as error:
        print(f"odradek: {describe(error)}", file=sys.stderr)
        return 2
    print(_text(summary, ignored), file=sys.stderr)
    return 1 if summary.differences > ignored else 0


async def _replay(arguments: argparse.Namespace, sides: dict[str, str | None], stream: BinaryIO) -> tuple[Summary, int]:
    from odradek.clients.recording.recording_file import Recording
    from odradek.clients.recording.replay import Replay
    from odradek.clients.recording.target import Target
    from odradek.timer import SystemClock

    known = [_pattern(text) for text in arguments.ignore]
    ignored = 0

    def report(difference: Difference) -> None:
        nonlocal ignored
        if any(pattern.fullmatch(difference.where) for pattern in known):
            ignored += 1
        else:
            print(_line(difference, list(sides), as_json=arguments.json), flush=True)

    dial, timeout_s = dial_of(arguments), arguments.timeout_ms / 1000
    targets = [Target(addresses("address", text)[0], dial, timeout_s) for text in sides.values() if text is not None]
    recording = Recording(stream, arguments.file)
    replay = Replay(targets, recording.started_ms, SystemClock(), report, is_timed=arguments.as_timed)
    summary = await replay.run(recording.entries)
    if recording.torn:
        print(f"odradek: {recording.torn}", file=sys.stderr)
    return summary, ignored


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise CommandError(f"--ignore {text}: not a regular expression: {error}") from error


def _line(difference: Difference, sides: list[str], *, as_json: bool) -> str:
    from odradek.broker.logging.printable import printable

    if as_json:
        document = {
            "timeMs": difference.time_us // 1000,
            "connection": difference.connection,
            "where": difference.where,
            sides[0]: difference.expected,
            sides[1]: difference.found,
        }
        return json.dumps(document, default=str)
    return printable(difference.line(*sides))


def _text(summary: Summary, ignored: int) -> str:
    parts = [f"{summary.requests} requests sent", f"{summary.responses} responses compared"]
    if summary.undecoded:
        parts.append(f"{summary.undecoded} of them undecoded")
    if summary.not_yet:
        parts.append(f"{summary.not_yet} requests left out, which the recorded cluster answered with 'not yet'")
    if summary.unlisted:
        parts.append(f"{summary.unlisted} requests left out where they are not listed")
    if summary.skipped:
        parts.append(f"{summary.skipped} requests left out, whose secrets are not recorded")
    parts.append(f"{summary.differences - ignored} differences")
    if ignored:
        parts.append(f"{ignored} ignored")
    return ", ".join(parts)

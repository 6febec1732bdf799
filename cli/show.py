"""`odradek show`: prints the requests and responses of a recording."""

from __future__ import annotations

import argparse
import json
import sys

from odradek.cli.errors import CommandError
from odradek.cli.options import command

EXAMPLES = """  odradek show orders.rec --brief
  odradek show orders.rec --api Produce --api Fetch --topic orders --records
  odradek show orders.rec --client order-service --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `show`."""
    description = "Print the requests and responses of a recording of `odradek record`, with all their fields."
    parser = command(subparsers, "show", "print a recording", run, description=description, examples=EXAMPLES)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--api", action="append", default=[], metavar="NAME", help="such as Fetch; may be repeated")
    parser.add_argument("--client", action="append", default=[], metavar="ID", help="a client id; may be repeated")
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON object per line")
    form.add_argument("--brief", action="store_true", help="one line for each, without the fields")
    form.add_argument("--records", action="store_true", help="also the records in the fields")


def run(arguments: argparse.Namespace) -> None:
    """Prints what the filters let pass. What the end of the file lacks is on stderr."""
    from odradek.broker.logging.printable import printable
    from odradek.clients.recording.recording_file import Recording
    from odradek.clients.recording.show import Filters, as_document, as_lines, frames

    filters = Filters(_apis(arguments.api), arguments.client, arguments.topic)
    with open(arguments.file, "rb") as stream:
        recording = Recording(stream, arguments.file)
        for shown in frames(recording.entries()):
            if not filters.pass_on(shown):
                continue
            if arguments.json:
                print(json.dumps(as_document(shown, recording.started_ms)))
                continue
            for line in as_lines(shown, brief=arguments.brief, records=arguments.records):
                print(printable(line))
        if recording.torn:
            print(f"odradek: {recording.torn}", file=sys.stderr)


def _apis(names: list[str]) -> list[str]:
    from odradek.protocol.api_keys import ApiKey

    known = {key.api_name.lower() for key in ApiKey}
    for name in names:
        if name.lower() not in known:
            raise CommandError(f"--api: no API is named {name!r}; names are Kafka's, such as FindCoordinator")
    return names

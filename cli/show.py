"""`odradek show`: prints the requests and responses of a recording; with --hex those in hexadecimal."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from odradek.cli.errors import CommandError
from odradek.cli.options import command

if TYPE_CHECKING:
    from odradek.protocol.api_keys import ApiKey

DESCRIPTION = """\
Print the requests and responses of a recording of `odradek record`, with all their fields.
With --hex print those that are given in hexadecimal, or as JSON, and encode JSON as bytes."""
EXAMPLES = """\
  odradek show orders.rec --brief
  odradek show orders.rec --api Produce --api Fetch --topic orders --records
  odradek show orders.rec --client order-service --json
  odradek show --hex 000000160012000000000001000c6b61666b612d707974686f6e
  odradek show --hex --response ApiVersions:0 HEX
  odradek show --hex --encode messages.jsonl

lines of --hex: a line of JSON gives one line of output, with all the fields of the input. It names its message by
apiKey and type, or by name (headers, coordinator records and all others):
  {"apiKey": 1, "type": "request", "version": 11, "hex": "..."}
  {"name": "OffsetCommitKey", "hex": "0001..."}
  {"name": "RequestHeader", "version": 2, "hex": "..."}
  {"name": "FetchRequest", "version": 11, "headerVersion": 1, "hex": "..."}    a frame: length, header and body

"fields" is added (for a frame also "header", and "rest" if bytes are left over), or "error". bytes and records are
base64; unknown tagged fields are under "_unknownTaggedFields". With --records "batches" is added: the record batches
in all records fields, or in "hex" if the line names no message.

--encode reads "fields" (for a frame also "header") and adds "hex", or "error". Missing fields get Kafka's defaults;
fields that the version does not have are errors.
"""
OF_RECORDINGS = ("api", "client", "topic", "json", "brief")
OF_HEX = ("encode", "batches", "response", "whole_values")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `show`."""
    summary = "print a recording, or frames in hexadecimal"
    parser = command(subparsers, "show", summary, run, description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("inputs", nargs="*", metavar="FILE", help="a recording; see --hex")
    parser.add_argument("--api", action="append", default=[], metavar="NAME", help="such as Fetch; may be repeated")
    parser.add_argument("--client", action="append", default=[], metavar="ID", help="a client id; may be repeated")
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON object per line")
    form.add_argument("--brief", action="store_true", help="one line for each, without the fields")
    form.add_argument("--records", action="store_true", help="also the records in the fields")
    _add_hex(parser)
    parser.set_defaults(refuse=parser.error)


def _add_hex(parser: argparse.ArgumentParser) -> None:
    text = "FILE is a frame in hexadecimal, or a file (else stdin) with such lines and lines of JSON, see below"
    parser.add_argument("--hex", action="store_true", help=text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--encode", action="store_true", help="with --hex: JSON to bytes")
    form.add_argument("--batches", action="store_true", help="with --hex: record batches, not frames")
    form.add_argument(
        "--response", type=_api_version, metavar="API:VERSION", help="with --hex: frames of responses, such as Fetch:11"
    )
    text = "with --hex and JSON: values above 512 bytes too, not their SHA-256"
    parser.add_argument("--whole-values", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Prints the recording, or the inputs of --hex."""
    for name in OF_RECORDINGS if arguments.hex else OF_HEX:
        if getattr(arguments, name):
            arguments.refuse(f"--{name.replace('_', '-')} is {'not ' if arguments.hex else ''}for --hex")
    if arguments.hex:
        from odradek.cli.hex_input import show_hex

        return show_hex(arguments)
    if len(arguments.inputs) != 1:
        arguments.refuse("expected the FILE of one recording")
    _show_recording(arguments, arguments.inputs[0])
    return 0


def _show_recording(arguments: argparse.Namespace, path: str) -> None:
    """Prints what the filters let pass. What the end of the file lacks is on stderr."""
    from odradek.broker.logging.printable import printable
    from odradek.clients.recording.recording_file import Recording
    from odradek.clients.recording.show import Filters, as_document, as_lines, frames

    filters = Filters(_apis(arguments.api), arguments.client, arguments.topic)
    with open(path, "rb") as stream:
        recording = Recording(stream, path)
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


def _api_version(text: str) -> tuple[ApiKey, int]:
    """argparse type: an API by name or number, and a version."""
    from odradek.protocol.inspected_lines import BadLine, api_key_of

    api, _, version = text.partition(":")
    if not version.isascii() or not version.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not API:VERSION, such as Fetch:11")
    try:
        return api_key_of(api), int(version)
    except BadLine as error:
        raise argparse.ArgumentTypeError(str(error)) from None

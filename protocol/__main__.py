"""`python -m odradek.protocol`: a wire inspector. `--help` and `inspected_lines` describe its input and output."""

from __future__ import annotations

import argparse
import io
import json
import os
import string
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from odradek.protocol.errors import ProtocolError
from odradek.protocol.inspected_lines import BadLine, api_key_of, batches_line, decode_line, encode_line
from odradek.protocol.readable import readable_batches, readable_request, readable_response

DESCRIPTION = "Converts Kafka's wire format to JSON and back, or prints a frame in readable form."

LINES = """\
Each line of JSON input gives one line of output, in the same order and with all the fields of the input.
A line names its message by apiKey and type, or by name (headers, coordinator records and all others):

  {"apiKey": 1, "type": "request", "version": 11, "hex": "..."}
  {"name": "OffsetCommitKey", "hex": "0001..."}
  {"name": "RequestHeader", "version": 2, "hex": "..."}
  {"name": "FetchRequest", "version": 11, "headerVersion": 1, "hex": "..."}    a frame: length, header and body

"""
DECODE = (
    LINES
    + """\
decode adds "fields" (for a frame also "header", and "rest" if bytes are left over), or "error".
bytes and records are base64; unknown tagged fields are under "_unknownTaggedFields".
With --records "hex" holds record batches, and "batches" is added; a line that names a message gets
the batches of all its records fields.

Instead of files, or as a line of input, one frame in hexadecimal is printed in readable form:

  python -m odradek.protocol decode 000000160012000000000001000c6b61666b612d707974686f6e
  python -m odradek.protocol decode --response --api-key ApiVersions --version 0 HEX
  python -m odradek.protocol decode --records HEX      record batches; with --frame a frame and the batches in it
"""
)
ENCODE = (
    LINES
    + """\
encode reads "fields" (for a frame also "header") and adds "hex", or "error".
Missing fields get Kafka's defaults; fields that the version does not have are errors.
"""
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "decode" and options.response and (options.api_key is None or options.version is None):
        parser.error("--response needs --api-key and --version: a response does not name its API")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    try:
        return _run(options)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m odradek.protocol", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="decode|encode")
    formatter = argparse.RawDescriptionHelpFormatter
    decode = commands.add_parser(
        "decode", help="bytes to JSON, or a frame in readable form", epilog=DECODE, formatter_class=formatter
    )
    decode.add_argument(
        "inputs", nargs="*", metavar="FILE|HEX", help="files of JSON lines, or one frame (default: stdin)"
    )
    decode.add_argument("--records", action="store_true", help="print record batches")
    decode.add_argument("--frame", action="store_true", help="with --records: HEX is a frame that holds batches")
    decode.add_argument("--whole-values", action="store_true", help="values above 512 bytes too, not their SHA-256")
    decode.add_argument("--response", action="store_true", help="HEX is the frame of a response")
    decode.add_argument("--api-key", metavar="API", help="with --response: number or name of the API")
    decode.add_argument("--version", type=int, metavar="N", help="with --response: version of the API")
    encode = commands.add_parser("encode", help="JSON to bytes", epilog=ENCODE, formatter_class=formatter)
    encode.add_argument("inputs", nargs="*", metavar="FILE", help="files of JSON lines (default: stdin)")
    return parser


def _run(options: argparse.Namespace) -> int:
    if not options.inputs:
        return _inspect_stream(sys.stdin.buffer, options)
    status = 0
    for name in options.inputs:
        if options.command == "decode" and is_hex(name) and not os.path.exists(name):
            status |= _print_readable(name, options)
            continue
        try:
            with open(name, "rb") as file:
                status |= _inspect_stream(file, options)
        except OSError as error:
            what = "neither a file nor hexadecimal" if options.command == "decode" else "not a file"
            print(f"{name}: {what} ({error.strerror})", file=sys.stderr)
            status = 1
    return status


def is_hex(text: str) -> bool:
    digits = "".join(text.split())
    return bool(digits) and len(digits) % 2 == 0 and all(digit in string.hexdigits for digit in digits)


def _inspect_stream(stream: BinaryIO, options: argparse.Namespace) -> int:
    """Returns 1 if a frame in hexadecimal could not be read, else 0; errors of JSON lines are part of the output."""
    status = 0
    for text in _texts(stream):
        if options.command == "decode" and is_hex(text):
            status |= _print_readable(text, options)
        else:
            print(inspect_line(text, options))
    return status


def _texts(stream: Iterable[bytes]) -> Iterator[str]:
    for line in stream:
        yield line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def inspect_line(text: str, options: argparse.Namespace) -> str:
    """Returns one line of JSON for any line of input; every error in the line is reported in it."""
    line: dict[str, Any] = {}
    try:
        parsed = json.loads(text)
        if not isinstance(parsed, dict):
            raise BadLine(f"expected a JSON object, not {type(parsed).__name__}")
        line = parsed
        if options.command == "encode":
            answer = encode_line(line)
        elif options.records:
            answer = batches_line(line, whole_values=options.whole_values)
        else:
            answer = decode_line(line)
        return json.dumps(answer, ensure_ascii=False)
    except json.JSONDecodeError as error:
        return json.dumps({"error": f"not JSON: {error}", "line": text})
    except (ValueError, ProtocolError) as error:
        reason = str(error)
    except (RecursionError, MemoryError, OverflowError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    results = ("fields", "batches") if options.command == "decode" else ("hex",)
    kept = {name: value for name, value in line.items() if name not in results} if line else {"line": text}
    try:
        return json.dumps({**kept, "error": reason})
    except RecursionError:
        return json.dumps({"error": reason})


def _print_readable(text: str, options: argparse.Namespace) -> int:
    data = bytes.fromhex("".join(text.split()))
    try:
        if options.response:
            shown = readable_response(data, api_key_of(options.api_key), options.version, records=options.records)
        elif options.records and not options.frame:
            shown = readable_batches(data)
        else:
            shown = readable_request(data, records=options.records)
        for line in shown:
            print(line)
    except (ValueError, ProtocolError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`odradek show --hex`: Kafka's wire format to JSON and back, or a frame in readable form.

The inputs are files of lines, or stdin. A line of JSON gives one line of output, in the same order and with all the
fields of the input (`protocol/inspected_lines.py` describes it); every error in it is part of the output. A line in
hexadecimal, and an input in hexadecimal that is no file, is a frame or record batches. If these cannot be read, the
reason is on stderr, the other inputs are printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import io
import os
import string
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import BinaryIO

from odradek.protocol.errors import ProtocolError
from odradek.protocol.inspected_lines import batches_line, decode_line, encode_line, inspected
from odradek.protocol.readable import readable_batches, readable_request, readable_response


def show_hex(options: argparse.Namespace) -> int:
    """Prints the inputs; returns the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    if not options.inputs:
        return _show_stream(sys.stdin.buffer, options)
    status = 0
    for name in options.inputs:
        if not options.encode and is_hex(name) and not os.path.exists(name):
            status |= _show_frame(name, options)
            continue
        try:
            with open(name, "rb") as file:
                status |= _show_stream(file, options)
        except OSError as error:
            what = "not a file" if options.encode else "neither a file nor hexadecimal"
            status |= _failed(f"{name}: {what} ({error.strerror})")
    return status


def is_hex(text: str) -> bool:
    digits = "".join(text.split())
    return bool(digits) and len(digits) % 2 == 0 and all(digit in string.hexdigits for digit in digits)


def _show_stream(stream: BinaryIO, options: argparse.Namespace) -> int:
    status = 0
    for text in _texts(stream):
        if not options.encode and is_hex(text):
            status |= _show_frame(text, options)
        else:
            print(_shown_line(text, options))
    return status


def _texts(stream: Iterable[bytes]) -> Iterator[str]:
    for line in stream:
        yield line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def _shown_line(text: str, options: argparse.Namespace) -> str:
    if options.encode:
        return inspected(text, encode_line, "hex")
    if options.records or options.batches:
        return inspected(text, partial(batches_line, whole_values=options.whole_values), "fields", "batches")
    return inspected(text, decode_line, "fields", "batches")


def _show_frame(text: str, options: argparse.Namespace) -> int:
    """Prints each line as it is decoded: what a damaged frame has before the error is printed too."""
    try:
        for line in _lines(bytes.fromhex("".join(text.split())), options):
            print(line)
    except (ValueError, ProtocolError) as error:
        return _failed(str(error))
    return 0


def _lines(data: bytes, options: argparse.Namespace) -> Iterator[str]:
    if options.batches:
        return readable_batches(data)
    if options.response is not None:
        api_key, version = options.response
        return readable_response(data, api_key, version, records=options.records)
    return readable_request(data, records=options.records)


def _failed(reason: str) -> int:
    print(f"odradek: {reason}", file=sys.stderr)
    return 1

"""`odradek produce TOPIC`: writes each line of the input as a record."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from odradek.cli.errors import CommandError
from odradek.cli.extras import require_extra
from odradek.cli.options import (
    add_bootstrap_server,
    assignments,
    command,
    kafka_python_security,
    not_negative,
    separator,
    with_admin,
)

if TYPE_CHECKING:
    from kafka import KafkaProducer

DESCRIPTION = """Write each line of stdin (or of --file) to a topic as one record, without its line end.

With --key-separator a line is KEY, separator, VALUE. With --headers a line begins with NAME:VALUE,NAME:VALUE and a tab.
The topic is created if it does not exist and the broker allows automatic creation."""

EXAMPLES = r"""  echo hello | odradek produce orders
  printf 'k1=v1\nk2=v2\n' | odradek produce orders --key-separator = --compression zstd
  printf 'trace:7,kind:test\tvalue\n' | odradek produce orders --headers --partition 0
"""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"0": 0, "1": 1, "all": "all", "-1": "all"}


class Line(NamedTuple):
    """A parsed line: one record to write."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `produce`."""
    summary = "write lines from stdin to a topic"
    parser = command(subparsers, "produce", summary, run, description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", help="read lines from this file instead of stdin")
    parser.add_argument("--key-separator", type=separator, metavar="TEXT", help=r"splits key from value; \t is a tab")
    parser.add_argument("--headers", action="store_true", help="lines begin with headers and a tab")
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of every record; may be repeated"
    )
    parser.add_argument("--null", metavar="TEXT", help="a key or value equal to this text is null")
    parser.add_argument("--partition", type=not_negative, metavar="N", help="default: by key, or distributed")
    parser.add_argument("--timestamp", type=not_negative, metavar="MS", help="timestamp of every record; default: now")
    parser.add_argument("--acks", choices=ACKS, default="all", help="required acknowledgments (default all)")
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none", help="default none")
    add_bootstrap_server(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes all lines, then prints their number on stderr."""
    require_extra("cli")
    with_admin(arguments, lambda admin: admin.describe_cluster())  # fails at once if there is no broker
    common = [(name, value.encode()) for name, value in assignments(arguments.header, "--header").items()]
    with _open(arguments.file) as source:
        count = _write(arguments, parse_lines(source, arguments), common)
    print(f"{count} record{'' if count == 1 else 's'} written to {arguments.topic}", file=sys.stderr)


def parse_lines(source: Iterable[bytes], arguments: argparse.Namespace) -> Iterator[Line]:
    """Yields the record of each line. Raises CommandError with the line's number."""
    null = None if arguments.null is None else arguments.null.encode()
    split_at = None if arguments.key_separator is None else arguments.key_separator.encode()
    for number, raw in enumerate(source, 1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        headers: list[tuple[str, bytes]] = []
        if arguments.headers:
            text, tab, line = line.partition(b"\t")
            if not tab:
                raise CommandError(f"line {number}: no tab after the headers")
            headers = _parse_headers(text, number)
        key: bytes | None = None
        if split_at is not None:
            key, found, line = line.partition(split_at)
            if not found:
                raise CommandError(f"line {number}: no key separator {arguments.key_separator!r}")
        yield Line(_or_null(key, null), _or_null(line, null), headers)


def _parse_headers(text: bytes, number: int) -> list[tuple[str, bytes]]:
    headers = []
    for part in filter(None, text.split(b",")):
        name, colon, value = part.partition(b":")
        if not colon:
            raise CommandError(f"line {number}: header {part.decode('utf-8', 'replace')!r} is not NAME:VALUE")
        headers.append((name.decode("utf-8", "replace"), value))
    return headers


def _or_null(data: bytes | None, null: bytes | None) -> bytes | None:
    return None if data is None or data == null else data


def _open(path: str | None) -> BinaryIO:
    if path is None:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return open(path, "rb")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


def _write(arguments: argparse.Namespace, lines: Iterator[Line], common: list[tuple[str, bytes]]) -> int:
    from kafka.errors import KafkaError

    count, first_failure = 0, list[Exception]()
    try:
        producer = _producer(arguments)
        try:
            for line in lines:
                future = producer.send(
                    arguments.topic,
                    line.value,
                    key=line.key,
                    headers=[*common, *line.headers],
                    partition=arguments.partition,
                    timestamp_ms=arguments.timestamp,
                )
                future.add_errback(first_failure.append)
                count += 1
                if first_failure:
                    break
            producer.flush(arguments.timeout_ms / 1000)
        finally:
            producer.close(timeout=1)
    except (KafkaError, ValueError) as error:  # ValueError: an illegal topic name, or a partition that does not exist
        raise CommandError(f"cannot write to {arguments.topic}: {error}") from error
    if first_failure:
        raise CommandError(f"cannot write to {arguments.topic}: {first_failure[0]}")
    return count


def _producer(arguments: argparse.Namespace) -> KafkaProducer:
    from kafka import KafkaProducer

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    acks: Any = ACKS[arguments.acks]
    return KafkaProducer(
        bootstrap_servers=arguments.bootstrap_server.split(","),
        client_id="odradek-produce",
        acks=acks,
        enable_idempotence=acks == "all",
        compression_type=None if arguments.compression == "none" else arguments.compression,
        linger_ms=5,
        max_block_ms=arguments.timeout_ms,
        request_timeout_ms=arguments.timeout_ms,
        delivery_timeout_ms=arguments.timeout_ms + 1000,
        **kafka_python_security(arguments),
    )

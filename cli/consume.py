"""`odradek consume TOPIC`: prints records as they arrive, without a consumer group."""

from __future__ import annotations

import argparse
import base64
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from odradek.cli.errors import CommandError
from odradek.cli.extras import require_extra
from odradek.cli.options import (
    add_bootstrap_server,
    command,
    kafka_python_security,
    not_negative,
    positive,
    unescaped,
    with_admin,
)

if TYPE_CHECKING:
    from kafka import KafkaConsumer

DESCRIPTION = """Print the values of a topic's records, one per line, as they arrive; by default only new records.

It ends with Ctrl-C, after --max-messages, after --idle-ms without a record, or with --exit at the end of all
partitions."""

EXAMPLES = r"""  odradek consume orders --from-beginning --max-messages 10
  odradek consume orders --from-beginning --exit --print-key --print-offset --print-timestamp
  odradek consume orders --partition 0 --offset 42 --format '%p:%o %k=%v\n'
  odradek consume orders --offset -5 --exit --json
"""
FORMAT_HELP = (
    "%%t topic, %%p partition, %%o offset, %%T time in ms, %%k key, %%v value, %%h headers, %%%% percent; \\n and \\t"
)
TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
POLL_MS = 200


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `consume`."""
    parser = command(subparsers, "consume", "print a topic's records", run, description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partition", type=not_negative, action="append", metavar="N", help="default: all; may be repeated"
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true", help="from the first available record")
    begin.add_argument(
        "--offset", metavar="N", help="from this offset of each partition; -N: N before the end; earliest; latest"
    )
    begin.add_argument("--from-timestamp", type=not_negative, metavar="MS", help="from the first record of this time")
    end = parser.add_argument_group("when to end")
    end.add_argument("--max-messages", type=positive, metavar="N", help="after N records")
    end.add_argument("--exit", action="store_true", help="at the end offsets that partitions have at the start")
    end.add_argument("--idle-ms", type=positive, metavar="MS", help="after this time without a record")
    show = parser.add_argument_group("what to print")
    for name in ("key", "offset", "partition", "timestamp", "headers"):
        show.add_argument(f"--print-{name}", action="store_true", help=f"print the {name} before the value")
    show.add_argument("--separator", type=unescaped, default="\t", metavar="TEXT", help=r"between fields (default \t)")
    show.add_argument("--null", default="null", metavar="TEXT", help="text to print for null (default null)")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--format", type=unescaped, metavar="FORMAT", help=FORMAT_HELP)
    form.add_argument("--json", action="store_true", help="a JSON object per line; bytes that are not UTF-8 in base64")
    parser.add_argument("--isolation-level", choices=("read_uncommitted", "read_committed"), default="read_uncommitted")
    add_bootstrap_server(parser)


def run(arguments: argparse.Namespace) -> None:
    """Prints records until an end condition holds, then their number on stderr."""
    require_extra("cli")
    topic = with_admin(arguments, lambda admin: admin.topic(arguments.topic))
    known = sorted(partition.partition_index for partition in topic.partitions)
    chosen = sorted(set(arguments.partition or known))
    unknown = [partition for partition in chosen if partition not in known]
    if unknown:
        raise CommandError(f"{arguments.topic} has no partition {unknown[0]}: it has {len(known)}")
    form = formatter(arguments)
    count = 0
    try:
        for record in _records(arguments, chosen):
            sys.stdout.buffer.write(form(record))
            sys.stdout.buffer.flush()
            count += 1
            if count == arguments.max_messages:
                break
    except KeyboardInterrupt:
        pass
    print(f"{count} record{'' if count == 1 else 's'} read from {arguments.topic}", file=sys.stderr)


def formatter(arguments: argparse.Namespace) -> Callable[[Any], bytes]:
    """Returns the function that formats a record."""
    null: bytes = arguments.null.encode()
    if arguments.json:
        return _as_json
    if arguments.format is not None:
        form: str = arguments.format
        return lambda record: _expand(form, record, null)
    names = [
        name for name in ("timestamp", "partition", "offset", "headers", "key") if getattr(arguments, f"print_{name}")
    ]
    between: bytes = arguments.separator.encode()

    def plain(record: Any) -> bytes:
        parts: list[bytes] = [_part(name, record, null) for name in names]
        return between.join([*parts, _or(record.value, null)]) + b"\n"

    return plain


def _part(name: str, record: Any, null: bytes) -> bytes:
    if name == "timestamp":
        kind = TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestampType")
        return f"{kind}:{record.timestamp}".encode()
    if name == "headers":
        return _headers(record, null)
    if name == "key":
        return _or(record.key, null)
    return f"{name.capitalize()}:{getattr(record, name)}".encode()


def _headers(record: Any, null: bytes) -> bytes:
    headers = [name.encode() + b":" + _or(value, null) for name, value in record.headers]
    return b",".join(headers) or b"NO_HEADERS"


def _expand(form: str, record: Any, null: bytes) -> bytes:
    fields: dict[str, Callable[[], bytes]] = {
        "%t": lambda: record.topic.encode(),
        "%p": lambda: b"%d" % record.partition,
        "%o": lambda: b"%d" % record.offset,
        "%T": lambda: b"%d" % record.timestamp,
        "%k": lambda: _or(record.key, null),
        "%v": lambda: _or(record.value, null),
        "%h": lambda: b"" if not record.headers else _headers(record, null),
        "%%": lambda: b"%",
    }
    parts = re.split(r"(%[tpoTkvh%])", form)
    return b"".join(fields[part]() if part in fields else part.encode() for part in parts)


def _as_json(record: Any) -> bytes:
    value: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        value.update(_text_or_base64(name, data))
    if record.headers:
        value["headers"] = [{"name": name, **_text_or_base64("value", data)} for name, data in record.headers]
    return _printable_json(json.dumps(value, ensure_ascii=False)).encode() + b"\n"


def _printable_json(text: str) -> str:
    """Returns the same JSON, readable, with an escape for each character that could control a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _or(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else data


def _records(arguments: argparse.Namespace, partitions: list[int]) -> Iterator[Any]:
    from kafka import TopicPartition
    from kafka.errors import KafkaError

    chosen = [TopicPartition(arguments.topic, partition) for partition in partitions]
    try:
        consumer = _consumer(arguments)
        try:
            consumer.assign(chosen)
            _seek(consumer, chosen, arguments)
            ends = consumer.end_offsets(chosen) if arguments.exit else None
            yield from _poll(consumer, ends, arguments.idle_ms)
        finally:
            consumer.close()
    except KafkaError as error:
        raise CommandError(f"cannot read {arguments.topic}: {error}") from error


def _consumer(arguments: argparse.Namespace) -> KafkaConsumer:
    from kafka import KafkaConsumer

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return KafkaConsumer(
        bootstrap_servers=arguments.bootstrap_server.split(","),
        client_id="odradek-consume",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=arguments.isolation_level,
        request_timeout_ms=arguments.timeout_ms,
        **kafka_python_security(arguments),
    )


def _seek(consumer: KafkaConsumer, chosen: list[Any], arguments: argparse.Namespace) -> None:
    """Seeks every partition to its first offset to read."""
    if arguments.from_timestamp is not None:
        found = consumer.offsets_for_times(dict.fromkeys(chosen, arguments.from_timestamp))
        ends = consumer.end_offsets(chosen)
        for partition in chosen:
            consumer.seek(partition, ends[partition] if found.get(partition) is None else found[partition].offset)
        return
    offset = "earliest" if arguments.from_beginning else arguments.offset or "latest"
    if offset == "earliest":
        consumer.seek_to_beginning(*chosen)
    elif offset == "latest":
        consumer.seek_to_end(*chosen)
    elif re.fullmatch(r"-?[0-9]+", offset) is None:
        raise CommandError(f"--offset {offset}: expected a number, earliest or latest")
    elif int(offset) >= 0:
        for partition in chosen:
            consumer.seek(partition, int(offset))
    else:
        firsts, ends = consumer.beginning_offsets(chosen), consumer.end_offsets(chosen)
        for partition in chosen:
            consumer.seek(partition, max(firsts[partition], ends[partition] + int(offset)))


def _poll(consumer: KafkaConsumer, ends: dict[Any, int] | None, idle_ms: int | None) -> Iterator[Any]:
    """Yields records until every partition reaches its end (if `ends` are given), or for `idle_ms` none arrived."""
    waited_ms = 0
    while True:
        if ends is not None and all(consumer.position(partition) >= end for partition, end in ends.items()):
            return
        batches = consumer.poll(POLL_MS)
        waited_ms = 0 if batches else waited_ms + POLL_MS
        for partition, records in batches.items():
            for record in records:
                if ends is None or record.offset < ends[partition]:
                    yield record
        if idle_ms is not None and waited_ms >= idle_ms:
            return

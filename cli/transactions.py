"""`odradek transactions`: list, describe and abort transactions, and find hanging ones."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.broker.logging.printable import printable
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, command, not_negative, positive, with_admin

if TYPE_CHECKING:
    from odradek.clients.admin.transactions import DescribedTransaction, OpenTransaction, TransactionAdmin

T = TypeVar("T")

EXAMPLES = """  odradek transactions list --state Ongoing
  odradek transactions describe copier-1
  odradek transactions abort copier-1
  odradek transactions find-hanging
  odradek transactions abort --topic orders --partition 0 --start-offset 1700
"""
DEFAULT_LONGEST_MINUTES = 15
MINUTE_MS = 60_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `transactions` and its actions."""
    parser = command(
        subparsers, "transactions", "list, describe and abort transactions, find hanging ones", _help, examples=EXAMPLES
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_describe(actions)
    _add_abort(actions)
    _add_find_hanging(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("transactions needs an action: list, describe, abort or find-hanging")


def _with_transactions(arguments: argparse.Namespace, work: Callable[[TransactionAdmin], Awaitable[T]]) -> T:
    from odradek.clients.admin.transactions import TransactionAdmin

    return with_admin(arguments, lambda admin: work(TransactionAdmin(admin)))


# list


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek transactions list\n  odradek transactions list --state Ongoing --json\n"
    parser = command(actions, "list", "list transactional ids and their states", list_transactions, examples=examples)
    parser.add_argument("--state", action="append", default=[], metavar="STATE", help="only these; may be repeated")
    parser.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=not_negative,
        metavar="ID",
        help="only this producer id; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_bootstrap_server(parser)


def list_transactions(arguments: argparse.Namespace) -> None:
    """Prints one line for each transactional id."""
    found = _with_transactions(arguments, lambda admin: admin.list_transactions(arguments.state, arguments.producer_id))
    rows = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator,
            "producer_id": one.producer_id,
            "state": one.state,
        }
        for one in found
    ]
    _print(rows, arguments.json)


# describe


def _add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek transactions describe copier-1\n"
    parser = command(actions, "describe", "describe transactional ids", describe, examples=examples)
    parser.add_argument("transactional_ids", nargs="+", metavar="TRANSACTIONAL-ID")
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_bootstrap_server(parser)


def describe(arguments: argparse.Namespace) -> None:
    """Prints the producer, state, times and partitions of transactional ids."""

    async def work(admin: TransactionAdmin) -> list[DescribedTransaction]:
        return [await admin.describe(name) for name in arguments.transactional_ids]

    _print([_described(one) for one in _with_transactions(arguments, work)], arguments.json)


def _described(one: DescribedTransaction) -> dict[str, Any]:
    is_open = one.state == "Ongoing" or one.state.startswith("Prepare")
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms if is_open else None,
        "duration_ms": _now_ms() - one.start_ms if is_open else None,
        "partitions": [str(partition) for partition in one.partitions],
    }


# abort


def _add_abort(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = (
        "  odradek transactions abort copier-1\n"
        "  odradek transactions abort --topic orders --partition 0 --start-offset 1700\n"
        "  odradek transactions abort --topic orders --partition 0 --producer-id 7 --producer-epoch 3\n"
    )
    description = (
        "With a transactional id: the coordinator aborts the open transaction and fences the producer. With a "
        "partition: write a marker to it, bypassing the coordinator, for a hanging transaction."
    )
    parser = command(actions, "abort", "abort a transaction", abort, description=description, examples=examples)
    parser.add_argument("transactional_id", nargs="?", metavar="TRANSACTIONAL-ID")
    parser.add_argument("--topic", metavar="TOPIC")
    parser.add_argument("--partition", type=not_negative, metavar="N")
    parser.add_argument("--start-offset", type=not_negative, metavar="N", help="first offset of the transaction")
    parser.add_argument("--producer-id", type=not_negative, metavar="ID", help="instead of --start-offset")
    parser.add_argument("--producer-epoch", type=not_negative, metavar="N", help="with --producer-id")
    parser.add_argument(
        "--coordinator-epoch", type=not_negative, default=0, metavar="N", help="with --producer-id (default 0)"
    )
    add_bootstrap_server(parser)


def abort(arguments: argparse.Namespace) -> None:
    """Aborts a transaction."""
    in_partition = (arguments.topic, arguments.partition)
    named = (arguments.start_offset, arguments.producer_id, arguments.producer_epoch)
    if arguments.transactional_id is not None:
        if (*in_partition, *named) != (None,) * 5:
            raise CommandError("abort takes a transactional id or a partition, not both")
        _abort_by_id(arguments)
    elif None in in_partition:
        raise CommandError("abort needs a transactional id, or --topic and --partition")
    elif (arguments.start_offset is None) == (None in named[1:]):
        raise CommandError("abort in a partition needs --start-offset, or --producer-id and --producer-epoch")
    else:
        _abort_in_partition(arguments)


def _abort_by_id(arguments: argparse.Namespace) -> None:
    found = _with_transactions(arguments, lambda admin: admin.abort(arguments.transactional_id))
    print(f"{arguments.transactional_id} is {printable(found.state)}")


def _abort_in_partition(arguments: argparse.Namespace) -> None:
    from odradek.protocol.topic_partition import TopicPartition

    key = TopicPartition(arguments.topic, arguments.partition)

    async def work(admin: TransactionAdmin) -> int:
        producer = (arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch)
        if arguments.start_offset is not None:
            found = await admin.open_at(key, arguments.start_offset)
            producer = (found.producer_id, found.producer_epoch, max(found.coordinator_epoch, 0))
        await admin.abort_in_partition(key, *producer)
        return int(producer[0])

    print(f"the transaction of producer {_with_transactions(arguments, work)} in {key} is aborted")


# find-hanging


def _add_find_hanging(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek transactions find-hanging\n  odradek transactions find-hanging --topic orders\n"
    description = "Find transactions that exceed the longest allowed time and that no coordinator will end."
    parser = command(
        actions, "find-hanging", "find hanging transactions", find_hanging, description=description, examples=examples
    )
    parser.add_argument("--topic", metavar="TOPIC", help="only this topic (default: all)")
    parser.add_argument(
        "--max-transaction-timeout",
        type=positive,
        default=DEFAULT_LONGEST_MINUTES,
        metavar="MINUTES",
        help=f"the longest allowed time of a transaction (default {DEFAULT_LONGEST_MINUTES})",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_bootstrap_server(parser)


def find_hanging(arguments: argparse.Namespace) -> None:
    """Prints one line for each hanging transaction, with the values that `abort` needs."""
    now_ms, longest_ms = _now_ms(), arguments.max_transaction_timeout * MINUTE_MS
    found = _with_transactions(arguments, lambda admin: admin.hanging(now_ms, longest_ms, arguments.topic))
    _print([_hanging(one, now_ms) for one in found], arguments.json)


def _hanging(one: OpenTransaction, now_ms: int) -> dict[str, Any]:
    producer = one.producer
    return {
        "topic": one.topic_partition.topic,
        "partition": one.topic_partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.current_txn_start_offset,
        "last_timestamp_ms": producer.last_timestamp,
        "duration_minutes": (now_ms - producer.last_timestamp) // MINUTE_MS,
    }


# Printing


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Prints JSON, or one line per row of `Name: value` separated by tabs, in the order of the keys."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("\t".join(f"{_title(name)}: {_text(value)}" for name, value in row.items()))


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return printable(",".join(value))
    return "none" if value is None else printable(str(value))


def _now_ms() -> int:
    return int(time.time() * 1000)

"""Measures the memory that operations retain: bytes per operation, for every API, in a soak test.

    python -m benchmarks.memory_of_operations [--minutes 10] [--operations 10000] [--apis NAME,...]

For every API a small valid request is sent repeatedly to a broker in this process, in rounds of all APIs until the time
is over, at least one round. A transaction, a topic and a group are operations of several requests each, from creation
to removal. After its first round an API is warm; from then on the table counts the growth of Python's memory
(tracemalloc, after a collection) and of resident memory, per 10,000 operations. The APIs that are left out, and those
whose responses contain an error, are listed below it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import structlog

from benchmarks import wire
from benchmarks.processes import resident_bytes
from odradek.broker.handlers.api_table import api_table
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.topics import (
    DeleteTopicsRequest,
)
from odradek.testing import BrokerThread
from tests.base_requests import Known
from tests.large_requests import small_request
from tests.scenarios.known_world import SETTINGS, KnownWorld
from tests.wire import requests
from tests.wire.blocking_client import Client, RawClient
from tests.wire.coordinators import field_of, until_loaded

COUNTED = 10_000
IN_FLIGHT = 50
REMOVAL_S = 20
NO_SESSION = {"SessionEpoch": -1}
"""For Fetch: a request with another epoch would create a session, of which a thousand are cached."""
SHARES = {"AlterPartitionReassignments": 0.1}
"""Each of these waits for the disk: ten thousand take minutes."""
LEFT_OUT = {
    "DeleteTopics": "a separate operation: a topic is created and deleted",
    "JoinGroup": "a separate operation: a member joins, syncs and leaves",
    "LeaveGroup": "see JoinGroup",
    "OffsetDelete": "there is nothing to delete the second time",
    "DeleteGroups": "there is nothing to delete the second time",
    "EndTxn": "a separate operation: a transaction",
    "WriteTxnMarkers": "brokers send it, not clients",
}


class Operation(NamedTuple):
    """`run(count)` repeats the operation. `share`: the fraction of the requested operations that is enough."""

    name: str
    run: Callable[[int], None]
    share: float = 1.0


class Kept(NamedTuple):
    """Sums over the counted rounds."""

    operations: int = 0
    traced_bytes: int = 0
    resident_bytes: int = 0


class Operations:
    """All operations, on one broker."""

    def __init__(self, thread: BrokerThread) -> None:
        self.errors: dict[str, set[int]] = {}
        """Error codes in the first response of a round to this API's request."""
        self._bootstrap = thread.bootstrap
        self._data_dir = thread.data_dir
        self._connection = Client(thread.bootstrap)
        self.world = KnownWorld(
            thread.bootstrap, Known(broker_id=thread.broker.broker_id, log_dir=str(thread.data_dir))
        )

    def all(self) -> Iterator[Operation]:
        for row in api_table().client_rows():
            if row.key.api_name not in LEFT_OUT:
                name = row.key.api_name
                yield Operation(name, self._sender(row.key, row.served.highest), SHARES.get(name, 1.0))
        yield Operation("a topic created and deleted", self._topics, 0.01)
        yield Operation("a member joins, syncs and leaves", self._members, 0.2)
        yield Operation("a transaction with offsets", self._transactions, 0.2)

    def close(self) -> None:
        self._connection.close()
        self.world.close()

    def _sender(self, api_key: ApiKey, version: int) -> Callable[[int], None]:
        def run(count: int) -> None:
            small = small_request(api_key, version, self.world.restore())
            payload = small._replace(document=small.document | NO_SESSION).payload()
            with RawClient(self._bootstrap, timeout=60) as client:
                self.errors[api_key.api_name] = wire.errors_in(wire.decoded(client.call(payload), api_key, version))
                for first in range(1, count, IN_FLIGHT):
                    some = min(IN_FLIGHT, count - first)
                    for _ in range(some):
                        client.send(payload)
                    for _ in range(some):
                        client.receive()

        return run

    def _topics(self, count: int) -> None:
        """Waits until the topics' files are removed: their names are kept until then."""
        for _ in range(count):
            self._connection.ask(requests.create_topics("short-lived", file_delete_delay_ms=0))
            self._connection.ask(DeleteTopicsRequest(topic_names=["short-lived"]))
        give_up = time.monotonic() + REMOVAL_S
        while any(self._data_dir.glob("short-lived*")) and time.monotonic() < give_up:
            time.sleep(0.05)

    def _members(self, count: int) -> None:
        ask = self._connection.ask
        for _ in range(count):
            member = ask(requests.join("short-lived", "")).member_id
            joined = ask(requests.join("short-lived", member))
            ask(requests.sync("short-lived", joined.generation_id, member, {member: b""}))
            ask(requests.leave("short-lived", [member]))

    def _transactions(self, count: int) -> None:
        known = self.world.restore()
        identity = known.transactional_id
        producer = (known.producer_id, known.producer_epoch)
        for _ in range(count):
            for request, error in (
                (
                    requests.add_partition(identity, producer, known.topic, 0),
                    "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
                ),
                (requests.add_offsets(identity, producer, known.group), "error_code"),
                (
                    requests.commit_offset(identity, producer, known.group, known.topic, 0, 1),
                    "topics.partitions.error_code",
                ),
                (requests.end(identity, producer, True), "error_code"),
            ):
                answer = until_loaded(self._connection, request, error)
                if field_of(answer, error):
                    raise RuntimeError(f"{type(request).__name__}: error {field_of(answer, error)}")


def soak(operations: Operations, wanted: set[str], count: int, minutes: float) -> dict[str, Kept]:
    """Runs rounds of all operations until the time is over. The first round is not counted."""
    chosen = [operation for operation in operations.all() if not wanted or operation.name in wanted]
    kept = {operation.name: Kept() for operation in chosen}
    for operation in chosen:
        operation.run(max(int(count * operation.share) // 10, 20))
        log(f"{operation.name}: warm")
    until = time.monotonic() + minutes * 60
    while True:
        for operation in chosen:
            times = max(int(count * operation.share), 20)
            traced, resident = memory()
            operation.run(times)
            more_traced, more_resident = memory()
            before = kept[operation.name]
            kept[operation.name] = Kept(
                before.operations + times,
                before.traced_bytes + more_traced - traced,
                before.resident_bytes + more_resident - resident,
            )
            log(f"{operation.name}: {kept[operation.name]}")
        if time.monotonic() >= until:
            return kept


def memory() -> tuple[int, int]:
    """Returns Python's memory after a collection, and resident memory."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0], resident_bytes(os.getpid())


def table(kept: dict[str, Kept]) -> str:
    lines = [
        "| operation | times | Python holds more, bytes for 10,000 | resident memory, KB for 10,000 |",
        "|---|---|---|---|",
    ]
    for name, found in sorted(kept.items(), key=lambda each: -each[1].traced_bytes / each[1].operations):
        traced, resident = (total * COUNTED / found.operations for total in (found.traced_bytes, found.resident_bytes))
        lines.append(f"| {name} | {found.operations:,d} | {traced:,.0f} | {resident / 1024:,.0f} |")
    return "\n".join(lines)


def notes(errors: dict[str, set[int]]) -> str:
    """Returns the omitted APIs and those with errors."""
    refused = {name: ", ".join(ErrorCode.of(code).name for code in codes) for name, codes in errors.items() if codes}
    lines = ["Left out:", *(f"* {name}: {reason}" for name, reason in LEFT_OUT.items())]
    if refused:
        lines += ["", "Answered with an error:", *(f"* {name}: {names}" for name, names in refused.items())]
    return "\n".join(lines)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_of_operations", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--operations", type=int, default=COUNTED, help="repetitions of each API in a round")
    parser.add_argument("--apis", default="", metavar="NAME,...", help="only these, by their names in the table")
    arguments = parser.parse_args()
    wanted = {name for name in arguments.apis.split(",") if name}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    tracemalloc.start()
    with BrokerThread(SETTINGS) as thread, closing(Operations(thread)) as operations:
        kept = soak(operations, wanted, arguments.operations, arguments.minutes)
    print(f"{table(kept)}\n\n{notes(operations.errors)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A client that makes a small round trip a hundred times a second and measures it.

    python -m benchmarks.healthy_client records PORT TOPIC
    python -m benchmarks.healthy_client health PORT

records: produces a record of 100 bytes and fetches it. health: requests /health on a new connection.

It prints a line after the first round trip. For every line on stdin it prints a JSON object of the time since the
last one: "taken", the round trips in ms, and "failed", the number of each kind of failure. A slow round trip delays the
next ones, which are measured from when they were due. After a failure it reconnects.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time
from collections import Counter
from typing import Protocol

from benchmarks import wire
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message

INTERVAL_S = 0.01
TIMEOUT_S = 30
RECORD_BYTES = 100
PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 7, 11


class Refused(Exception):
    """The broker returned an error, which the message names."""


class Client(Protocol):
    def round_trip(self) -> None:
        """Makes one round trip. Raises Refused, OSError."""

    def reconnect(self) -> None:
        """Reconnects after a failure. Raises OSError."""


def produce_of(topic: str, size: int) -> bytes:
    """Returns the frame of a request that produces one record with so many bytes."""
    batch = bytes(build_batch([Record(offset=0, timestamp=1000, key=None, value=bytes(size), headers=[])]))
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])]
    return wire.framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)


class OneConnection:
    """A client with one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = socket.socket()
        self.reconnect()

    def reconnect(self) -> None:
        """Raises OSError."""
        self._connection.close()
        self._connection = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Records(OneConnection):
    """Sends the same record repeatedly."""

    def __init__(self, port: int, topic: str) -> None:
        self._topic = topic
        self._produce = produce_of(topic, RECORD_BYTES)
        super().__init__(port)

    def round_trip(self) -> None:
        """Fetches until the record arrives: a broker may respond without it after its wait."""
        self._connection.sendall(self._produce)
        produced = wire.decoded(wire.receive(self._connection), PRODUCE, PRODUCE_VERSION)
        expect_success(produced)
        assert isinstance(produced, ProduceResponse)
        fetch = self._fetch(produced.responses[0].partition_responses[0].base_offset)
        answer = b""
        while len(answer) < RECORD_BYTES:
            self._connection.sendall(fetch)
            answer = wire.receive(self._connection)
            if len(answer) < RECORD_BYTES:
                expect_success(wire.decoded(answer, FETCH, FETCH_VERSION))

    def _fetch(self, offset: int) -> bytes:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000)
        topics = [FetchRequest.FetchTopic(topic=self._topic, partitions=[partition])]
        request = FetchRequest(
            replica_id=-1, max_wait_ms=10_000, min_bytes=1, max_bytes=10_000, session_epoch=-1, topics=topics
        )
        return wire.framed(request, FETCH_VERSION)


class Health:
    """Health checks like an orchestrator's."""

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)

    def reconnect(self) -> None:
        """No effect: every round trip opens a new connection."""

    def round_trip(self) -> None:
        with socket.create_connection(self._address, TIMEOUT_S) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            status = connection.recv(4096).partition(b"\r\n")[0]
        if b" 200 " not in status:
            raise Refused(status.decode("latin-1") or "closed")


def expect_success(answer: Message) -> None:
    """Raises Refused if the response contains an error."""
    errors = wire.errors_in(answer)
    if errors:
        raise Refused(ErrorCode.of(min(errors)).name)


def until_served(client: Client) -> None:
    """Makes the first round trip; a new topic may have no leader yet. Raises Refused, OSError."""
    give_up = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return client.round_trip()
        except Refused:
            if time.monotonic() > give_up:
                raise
            time.sleep(INTERVAL_S)


class Measured:
    """The round trips since the last report."""

    def __init__(self, client: Client, interval_s: float = INTERVAL_S) -> None:
        self._client = client
        self._interval_s = interval_s
        self._taken: list[float] = []
        self._failed: Counter[str] = Counter()
        self._due = time.perf_counter()

    def round_trip(self) -> None:
        try:
            self._client.round_trip()
        except (Refused, OSError) as failure:
            self._failed[str(failure) if isinstance(failure, Refused) else type(failure).__name__] += 1
            with contextlib.suppress(OSError):
                self._client.reconnect()
        else:
            self._taken.append((time.perf_counter() - self._due) * 1000)
        self._due += self._interval_s

    def seconds_left(self) -> float:
        """Seconds until the next round trip is due."""
        return max(self._due - time.perf_counter(), 0)

    def reported(self) -> str:
        """Returns the report and starts a new one."""
        line = json.dumps({"taken": self._taken, "failed": self._failed})
        self._taken, self._failed, self._due = [], Counter(), time.perf_counter()
        return line


def main() -> None:
    what, port, *topic = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
    serve(Records(port, *topic) if what == "records" else Health(port))


def serve(client: Client, interval_s: float = INTERVAL_S) -> None:
    """Makes round trips and reports them, until stdin ends."""
    until_served(client)
    print("ready", flush=True)
    measured = Measured(client, interval_s)
    while True:
        measured.round_trip()
        if select.select([sys.stdin], [], [], measured.seconds_left())[0]:
            if not sys.stdin.readline():
                return
            print(measured.reported(), flush=True)


if __name__ == "__main__":
    main()

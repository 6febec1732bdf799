"""A client that does a little and measures it: a record of 100 bytes is produced and fetched again, a hundred a second.

    python -m benchmarks.healthy_client PORT TOPIC

It prints a line when the first round trip is done. For every line on its standard input it prints one: the round
trips since then, in ms, as a JSON array. One that takes long delays those that follow, which are counted from when
they were due.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from benchmarks import wire
from odradek.protocol.compiler import decode, read
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import ResponseHeader, response_header_version
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import Record, build_batch

INTERVAL_S = 0.01
RECORD_BYTES = 100
PRODUCE_VERSION, FETCH_VERSION = 7, 11


class HealthyClient:
    def __init__(self, port: int, topic: str) -> None:
        self._topic = topic
        self._connection = socket.create_connection(("127.0.0.1", port), 120)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        batch = bytes(build_batch([Record(offset=0, timestamp=1000, key=None, value=bytes(RECORD_BYTES), headers=[])]))
        partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])]
        self._produce = wire.framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)

    def round_trip(self) -> None:
        """Raises RuntimeError where the record is refused. A broker may answer a fetch without it, after its wait."""
        self._connection.sendall(self._produce)
        answer = wire.receive(self._connection)
        _, position = read(ResponseHeader, response_header_version(0, PRODUCE_VERSION), answer)
        produced = decode(ProduceResponse, PRODUCE_VERSION, answer, position).responses[0].partition_responses[0]
        if produced.error_code != ErrorCode.NONE:
            raise RuntimeError(f"produce: error {produced.error_code}")
        size = 0
        while size < RECORD_BYTES:
            self._connection.sendall(self._fetch(produced.base_offset))
            size = len(wire.receive(self._connection))

    def _fetch(self, offset: int) -> bytes:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000)
        topics = [FetchRequest.FetchTopic(topic=self._topic, partitions=[partition])]
        request = FetchRequest(
            replica_id=-1, max_wait_ms=10_000, min_bytes=1, max_bytes=10_000, session_epoch=-1, topics=topics
        )
        return wire.framed(request, FETCH_VERSION)


def main() -> None:
    client = HealthyClient(int(sys.argv[1]), sys.argv[2])
    client.round_trip()
    print("ready", flush=True)
    taken: list[float] = []
    due = time.perf_counter()
    while True:
        client.round_trip()
        taken.append((time.perf_counter() - due) * 1000)
        due += INTERVAL_S
        wait = max(due - time.perf_counter(), 0)
        if select.select([sys.stdin], [], [], wait)[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps(taken), flush=True)
            taken, due = [], time.perf_counter()


if __name__ == "__main__":
    main()

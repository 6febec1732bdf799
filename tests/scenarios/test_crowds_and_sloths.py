"""Ten thousand idle connections, clients that never read, clients that close half: none of them slows down another."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.broker.metadata.new_topic import NewTopic as StoredTopic
from odradek.broker.network.socket_server import SocketServer
from odradek.broker.periodic_work import SWEEP_INTERVAL_MS
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from tests.patience import until
from tests.spawned_broker import SpawnedBroker, spawned_broker
from tests.wire import requests
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

IDLE_CONNECTIONS = 10_000

OPEN_AND_WAIT = """
import resource, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection((host, port), timeout=30) for _ in range(count)]
print(len(held), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SpawnedBroker]:
    with spawned_broker(tmp_path / "data", {"num.partitions": "1"}) as running:
        yield running


def memory_bytes(broker: SpawnedBroker) -> int:
    """The broker's resident memory."""
    pages = int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def round_trip(broker: SpawnedBroker, value: bytes) -> None:
    """A real client produces and reads back one record."""
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    sent = producer.send("felt", value, partition=0).get(timeout=20)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    partition = kafka.TopicPartition("felt", 0)
    consumer.assign([partition])
    consumer.seek(partition, sent.offset)
    polled = consumer.poll(timeout_ms=20_000, max_records=1)
    consumer.close()
    assert [message.value for message in polled[partition]] == [value]


def make_topic(broker: SpawnedBroker, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(name=name, num_partitions=1, replication_factor=1)])
    admin.close()


@pytest.mark.long
def test_ten_thousand_idle_connections_cost_little_and_delay_no_client(broker: SpawnedBroker) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(IDLE_CONNECTIONS, hard // 4 * 3 - 100)  # the rest is for the logs
    host, port = broker.bootstrap.rsplit(":", 1)
    round_trip(broker, b"before")
    before = memory_bytes(broker)
    command = [sys.executable, "-c", OPEN_AND_WAIT, host, port, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        assert crowd.stdout.readline().strip() == str(count)
        round_trip(broker, b"among the crowd")
        assert (memory_bytes(broker) - before) / count < 20_000, "bytes for each idle connection"
        crowd.stdin.write("\n")
        crowd.stdin.close()
    round_trip(broker, b"after")
    assert broker.process.poll() is None


def test_a_client_that_never_reads_holds_little_memory_and_delays_no_client(broker: SpawnedBroker) -> None:
    make_topic(broker, "felt")
    batch = build_batch([Record(offset=0, timestamp=1, key=None, value=bytes(900_000), headers=[])])
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="felt", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]
            )
        ],
    )
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50_000_000,
        topics=[
            FetchRequest.FetchTopic(
                topic="felt",
                partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)],
            )
        ],
    )
    with RawClient(broker.bootstrap) as writer:
        for _ in range(20):
            writer.call(request_payload(produce, 7))
    before = memory_bytes(broker)
    sloths = [RawClient(broker.bootstrap, receive_buffer=4096) for _ in range(10)]
    for sloth in sloths:
        sloth.socket.settimeout(1)
        for _ in range(50):
            try:
                sloth.send(request_payload(fetch, 11))
            except TimeoutError:
                break
    round_trip(broker, b"awake")
    assert memory_bytes(broker) - before < 400 * 1024 * 1024, "18 MB asked for 500 times over"
    for sloth in sloths:
        sloth.socket.close()
    round_trip(broker, b"still awake")


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_half_closed_connection_and_its_parked_fetch_end_within_a_second(
    is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once if the connection is being read. If not, since a fetch waits for another one of its session, at the next
    of the broker's checks of connections, two a second. The fetch would wait for a minute.
    """
    looks: list[SocketServer] = []
    look = SocketServer.sweep

    def counted(server: SocketServer) -> None:
        looks.append(server)
        look(server)

    monkeypatch.setattr(SocketServer, "sweep", counted)
    async with in_process_broker({"num.partitions": 1}) as broker:
        await broker.controller.topics.create([StoredTopic("felt", 1, 1)], timeout_ms=30_000)
        host, port = broker.bootstrap.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        if is_read:
            writer.write(fetch_of(max_wait_ms=60_000))
        else:
            writer.write(fetch_of(max_wait_ms=0, session_epoch=0))
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            session_id = int.from_bytes(answer[10:14], "big")  # after correlation id, throttle time and error code
            writer.write(fetch_of(max_wait_ms=60_000, session_id=session_id, session_epoch=1) * 2)
        waiting = broker.replica_manager.fetch_purgatory
        await until(lambda: waiting.delayed == 1 and len(broker.socket_server.blocked) == (not is_read))
        looks.clear()
        writer.write_eof()
        assert await reader.read() == b""
        assert len(looks) * SWEEP_INTERVAL_MS <= 1000
        await until(lambda: not broker.socket_server.connections and waiting.delayed == 0)
        assert waiting.expired == 0
        writer.close()


def fetch_of(**parameters: Any) -> bytes:
    """The frame of a fetch that finds nothing; without a session by default."""
    payload = request_payload(
        requests.fetch((TopicPartition("felt", 0), 0), max_bytes=1000, partition_bytes=99, **parameters), 11
    )
    return len(payload).to_bytes(4, "big") + payload

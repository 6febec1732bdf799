"""A reset: the broker is what it was at its start, at the same address."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.structs import TopicPartition

from odradek.broker.start_error import StartError
from odradek.clients.admin.client import AdminClient
from odradek.clients.network_errors import NetworkError
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.testing import BrokerThread, InProcessBroker, ResetError, Security, allow, in_process_broker
from odradek.testing.snapshots import origin
from tests.patience import PATIENCE_S, until
from tests.testing.leftovers import left_behind
from tests.testing.test_snapshots import FEW, commit, committed
from tests.wire import requests
from tests.wire.records import FETCH_VERSION, connect, produce_on, values

THREADS_OF_A_BROKER = 4


@pytest.mark.parametrize("starts", ["empty", "from a snapshot"])
async def test_everything_is_as_at_the_start_but_the_address(starts: str) -> None:
    async with in_process_broker(**FEW) as first:
        await first.seed({"original": [b"kept"]})
        await commit(first.bootstrap, "group", "original", 1)
        snapshot = await first.snapshot() if starts == "from a snapshot" else None
    topics = ["__consumer_offsets", "original"] if snapshot else []
    async with in_process_broker(snapshot=snapshot, **FEW) as broker:
        address, cluster_id, broker_id = broker.bootstrap, broker.metadata.cluster_id, broker.broker_id
        for _ in range(2):
            await broker.seed({"orders": [b"value"], "original": [b"more"]})
            await commit(broker.bootstrap, "group", "orders", 1)
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id="tx")
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"in a transaction")
            async with AdminClient(address) as admin:
                change = [("log.retention.ms", ConfigOperation.SET, "5000")]
                await admin.alter_configs(ConfigResourceType.BROKER, "", change)
                assert broker.config.log_retention_ms == 5000
            await broker.reset()
            with contextlib.suppress(Exception):  # what the client makes of it is its own affair
                await producer.stop()
            assert (broker.bootstrap, broker.metadata.cluster_id, broker.broker_id) == (address, cluster_id, broker_id)
            async with AdminClient(address) as admin:
                assert [topic.name for topic in await admin.topics()] == topics
            assert broker.config.log_retention_ms != 5000
            assert await committed(broker.bootstrap, "group", "orders") is None
            if snapshot:
                assert await values(broker.bootstrap, "original") == [b"kept"]
                assert await committed(broker.bootstrap, "group", "original") == 1
            await broker.reset()
        await broker.seed({"orders": [b"value"]})
        assert await values(broker.bootstrap, "orders") == [b"value"]


async def test_clients_are_disconnected_and_parked_requests_end() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        async with await connect(broker.bootstrap) as idle, await connect(broker.bootstrap) as waiting:
            assert await produce_on(idle, "orders", b"value") == 0
            fetch = requests.fetch(
                (TopicPartition("orders", 0), 2),
                max_wait_ms=600_000,
                max_bytes=1000,
                session_epoch=-1,
                partition_bytes=1000,
            )
            parked = asyncio.create_task(waiting.send(fetch, version=FETCH_VERSION, timeout_ms=600_000))
            await until(lambda: broker.replica_manager.fetch_purgatory.delayed > 0)
            await broker.reset()
            assert not broker.socket_server.connections
            await asyncio.wait([parked], timeout=PATIENCE_S)
            assert parked.done()
            with pytest.raises(NetworkError):
                await produce_on(idle, "orders", b"value")


async def test_a_client_that_connects_during_a_reset_is_served_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker() as broker:
        host, port = broker.bootstrap.split(":")
        inside, go_on = asyncio.Event(), asyncio.Event()
        start = type(broker).start

        async def slowly(self: object) -> None:
            inside.set()
            await go_on.wait()
            await start(broker)

        monkeypatch.setattr(type(broker), "start", slowly)
        resetting = asyncio.create_task(broker.reset())
        await inside.wait()
        with pytest.raises(OSError, match="in use"), socket.socket() as thief:
            thief.bind((host, int(port)))
        reader, writer = await asyncio.open_connection(host, int(port))
        go_on.set()
        await resetting
        writer.close()
        await broker.seed({"orders": [b"value"]})
        assert await values(broker.bootstrap, "orders") == [b"value"]
        del reader


async def test_a_consumer_and_a_producer_go_on_after_a_reset() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"before"]})
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False) as producer:
            assert (await producer.send_and_wait("orders", b"before")).offset == 1
            await broker.reset()
            await broker.seed({"orders": [b"after"]})
            assert (await asyncio.wait_for(producer.send_and_wait("orders", b"after"), 30)).offset == 1
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition("orders", 0)])
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"after"
        await broker.reset()
        await broker.seed({"orders": [b"one", b"two", b"three"]})
        async with asyncio.timeout(30):
            while (await consumer.getone()).value != b"three":
                pass  # it remembers its position, and what it has fetched before
        await consumer.stop()


async def test_secured_brokers_have_their_users_and_acls_again() -> None:
    acls = [allow("alice", "WRITE", "READ", "CREATE", topic="orders")]
    security = Security("SASL_SSL", users={"alice": "secret"}, acls=acls)
    async with in_process_broker(security=security) as broker:
        for _ in range(2):
            async with aiokafka.AIOKafkaProducer(**broker.client_settings("aiokafka")) as producer:
                assert (await producer.send_and_wait("orders", b"value")).offset == 0
            await broker.reset()


async def test_a_reset_keeps_the_port_of_the_metrics() -> None:
    async with in_process_broker(odradek_metrics_port=0) as broker:
        assert broker.metrics_server is not None
        port = broker.metrics_server.port
        await broker.reset()
        assert broker.metrics_server.port == port
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()


async def test_data_that_was_there_before_the_start_is_not_reset_away(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        await broker.seed({"orders": [b"precious"]})
    async with in_process_broker(data_dir=tmp_path) as broker:
        with pytest.raises(ResetError, match=r"had data before the start.* take a snapshot"):
            await broker.reset()
        assert await values(broker.bootstrap, "orders") == [b"precious"]


async def test_a_stopped_broker_is_not_reset() -> None:
    async with in_process_broker() as broker:
        pass
    with pytest.raises(ResetError, match="is not running"):
        await broker.reset()


async def test_two_resets_at_once_are_one_after_the_other() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        await asyncio.gather(broker.reset(), broker.reset())
        await broker.seed({"orders": [b"value"]})
        assert await values(broker.bootstrap, "orders") == [b"value"]


async def test_a_reset_that_fails_says_so_and_frees_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker() as broker:
        host, port = broker.bootstrap.split(":")

        def fails(*_: object) -> None:
            raise StartError("no disk")

        with monkeypatch.context() as patch:
            patch.setattr(origin.Origin, "_set_aside", fails)
            with pytest.raises(StartError, match="no disk"):
                await broker.reset()
        with socket.socket() as other:
            other.bind((host, int(port)))
        with pytest.raises(ResetError, match="is not running"):
            await broker.reset()


@pytest.mark.usefixtures("isolated")
async def test_resets_leave_no_file_socket_thread_or_directory_behind() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        await broker.reset()
        before, tasks, threads = left_behind(), asyncio.all_tasks(), threading.active_count()
        for _ in range(4):
            await broker.seed({"orders": [b"value"]})
            with await broker.snapshot():
                pass
            await broker.reset()
        now = left_behind()
        assert len(now[0]) <= len(before[0])
        assert threading.active_count() <= threads + THREADS_OF_A_BROKER
        assert now[2] == before[2]
        assert len(asyncio.all_tasks()) == len(tasks)


def test_blocking_clients_find_an_empty_broker_at_the_same_address() -> None:
    with BrokerThread() as broker:
        for _ in range(3):
            producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
            assert producer.send("orders", b"value").get(timeout=PATIENCE_S).offset == 0
            producer.close()
            broker.reset()


async def test_what_is_removed_is_gone_soon_and_is_no_data_of_the_next_start(tmp_path: Path) -> None:
    aside = tmp_path / "data" / origin.ASIDE
    async with in_process_broker(data_dir=tmp_path / "data") as broker:
        await broker.seed({f"topic-{number}": [b"value"] for number in range(10)})
        await broker.reset()
        await until(lambda: not aside.exists())
        assert broker.log_manager.directories[str(tmp_path / "data")].partitions() == []
    shutil.rmtree(aside.parent)
    (aside / "topic-0").mkdir(parents=True)  # the process ended before it was removed
    async with in_process_broker(data_dir=tmp_path / "data") as broker:
        await broker.reset()
        await until(lambda: not aside.exists())


@pytest.mark.parametrize("hosts", ["PLAINTEXT://localhost:0", "PLAINTEXT://:0", "A://127.0.0.1:0,B://127.0.0.1:0"])
async def test_every_listener_keeps_all_of_its_addresses(hosts: str) -> None:
    settings = {"listeners": hosts}
    if hosts.startswith("A"):
        settings |= {
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name": "B",
        }
    async with in_process_broker(settings) as broker:
        before = addresses(broker)
        await broker.reset()
        assert addresses(broker) == before
        for _, (host, port, *_) in before:
            _, writer = await asyncio.open_connection(host, port)
            writer.close()


def addresses(broker: InProcessBroker) -> list[tuple[str, Any]]:
    """Returns the names of the listeners with their addresses."""
    bound = broker.socket_server.duplicated_sockets()
    found = [(name, each.getsockname()) for name, sockets in bound.items() for each in sockets]
    for each in chain.from_iterable(bound.values()):
        each.close()
    return found

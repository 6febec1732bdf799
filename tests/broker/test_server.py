"""The broker as a whole: its start, errors that keep it from starting, and its shutdown."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.start_error import StartError
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.files import DirectoryLock, OsFiles
from odradek.testing import BrokerThread, in_process_broker
from odradek.timer import ManualClock
from tests.wire.raw_client import connected
from tests.wire.records import produce_request
from tests.wire.requests import fetch, produce


async def until_something_is_parked(broker: Broker) -> None:
    async with asyncio.timeout(20):
        while broker.replica_manager.fetch_purgatory.delayed == 0:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)


async def test_a_broker_serves_on_a_free_port_and_leaves_nothing_behind() -> None:
    threads_before = threading.active_count()
    tasks_before = len(asyncio.all_tasks())
    async with in_process_broker() as broker:
        data_dir = broker.config.log_dirs[0]
        assert "meta.properties" in os.listdir(data_dir)
        client = await connected(broker.endpoints[0].port)
        metadata: MetadataResponse = await client.call(MetadataRequest(topics=[]), 9)
        assert [f"{node.host}:{node.port}" for node in metadata.brokers] == [broker.bootstrap]
        await client.close()
    assert not os.path.exists(data_dir)  # noqa: ASYNC240 - nothing else runs
    assert threading.active_count() == threads_before
    assert len(asyncio.all_tasks()) == tasks_before


async def test_topics_and_records_survive_a_restart(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as broker:
        client = await connected(broker.endpoints[0].port)
        await broker.controller.topics.create([NewTopic("kept", 2, 1)], timeout_ms=10_000)
        first: ProduceResponse = await client.call(produce_request("kept", b"value"), 9)
        assert first.responses[0].partition_responses[0].error_code == 0
        await client.close()
        cluster_id, topic_id = broker.metadata.cluster_id, broker.metadata.topic_id("kept")
    async with in_process_broker(data_dir=tmp_path) as broker:
        assert broker.metadata.cluster_id == cluster_id
        assert broker.metadata.topic_id("kept") == topic_id
        assert broker.replica_manager.partitions.find(TopicPartition("kept", 0)).log.state.log_end_offset == 1
        client = await connected(broker.endpoints[0].port)
        answer = await client.call(fetch((TopicPartition("kept", 0), 0), max_wait_ms=1000), 11)
        assert b"value" in answer.responses[0].partitions[0].records
        await client.close()


async def test_a_stopping_broker_answers_parked_requests() -> None:
    async with in_process_broker() as broker:
        await broker.controller.topics.create([NewTopic("quiet", 1, 1)], timeout_ms=10_000)
        client = await connected(broker.endpoints[0].port)
        client.send_request(fetch((TopicPartition("quiet", 0), 0), max_wait_ms=60_000), 11)
        await until_something_is_parked(broker)
        stopping = asyncio.create_task(broker.stop())
        answer = await client.response()
        assert answer.responses[0].partitions[0].error_code == 0
        assert await client.reader.read() == b""
        await stopping
        await client.close()


async def test_a_client_that_disconnects_cancels_its_parked_requests() -> None:
    async with in_process_broker() as broker:
        await broker.controller.topics.create([NewTopic("quiet", 1, 1)], timeout_ms=10_000)
        purgatory = broker.replica_manager.fetch_purgatory
        client = await connected(broker.endpoints[0].port)
        client.send_request(fetch((TopicPartition("quiet", 0), 0), max_wait_ms=60_000), 11)
        await until_something_is_parked(broker)
        client.writer.write_eof()
        assert await client.reader.read() == b""
        assert purgatory.delayed == 0
        await client.close()


async def test_a_parked_fetch_does_not_delay_later_requests() -> None:
    async with in_process_broker() as broker:
        await broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=10_000)
        client = await connected(broker.endpoints[0].port)
        client.send_request(fetch((TopicPartition("t", 0), 0), max_wait_ms=60_000), 11)
        client.send_request(produce_request("t", b"value"), 9)
        client.send_request(MetadataRequest(topics=[]), 9)
        assert b"value" in (await client.response()).responses[0].partitions[0].records
        assert (await client.response()).responses[0].partition_responses[0].base_offset == 0
        assert (await client.response()).controller_id == broker.broker_id
        await client.close()


async def test_an_unexpected_error_is_answered_with_minus_one_and_the_connection_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with in_process_broker() as broker:

        def broken(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError("a fault of ours")

        monkeypatch.setattr(broker.metadata, "contains", broken)
        client = await connected(broker.endpoints[0].port)
        with structlog.testing.capture_logs() as logs:
            answer: ProduceResponse = await client.call(produce("t", None), 9)
        assert answer.responses[0].name == "t"
        assert answer.responses[0].partition_responses[0].error_code == -1
        [line] = [entry for entry in logs if entry["log_level"] == "error"]
        assert line["api"] == "PRODUCE"
        assert isinstance(line["exc_info"], ZeroDivisionError)
        assert (await client.call(MetadataRequest(topics=[]), 9)).controller_id == 0
        await client.close()


@pytest.mark.parametrize("version", [4, 7, 11])
async def test_more_than_ten_thousand_partitions_in_one_request_are_a_policy_violation(version: int) -> None:
    async with in_process_broker() as broker:
        client = await connected(broker.endpoints[0].port)
        request = fetch((TopicPartition("t", 0), 0), max_wait_ms=0)
        request.topics[0].partitions = [FetchRequest.FetchPartition(partition=index) for index in range(10_001)]
        with structlog.testing.capture_logs() as logs:
            answer = await client.call(request, version)
        codes = {partition.error_code for partition in answer.responses[0].partitions}
        assert codes == {44}
        assert [entry["error"] for entry in logs] == ["POLICY_VIOLATION"]
        request.topics[0].partitions.pop()
        answer = await client.call(request, version)
        assert {partition.error_code for partition in answer.responses[0].partitions} == {3}
        await client.close()


async def test_each_listener_returns_its_own_advertised_address() -> None:
    settings = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "advertised.listeners": "IN://127.0.0.1:0,OUT://broker.example:19092",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name": "IN",
    }
    async with in_process_broker(settings) as broker:
        seen = []
        for endpoint in broker.endpoints:
            client = await connected(endpoint.port)
            [node] = (await client.call(MetadataRequest(topics=[]), 9)).brokers
            seen.append((node.host, node.port))
            await client.close()
        assert seen == [("127.0.0.1", broker.endpoints[0].port), ("broker.example", 19092)]


async def test_an_occupied_port_keeps_a_broker_from_starting_and_it_frees_everything(tmp_path: Path) -> None:
    async with in_process_broker() as first:
        port = first.endpoints[0].port
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        with pytest.raises(StartError, match=f"port {port} is already in use"):
            async with in_process_broker(listeners=listeners, data_dir=tmp_path):
                pass
    async with in_process_broker(listeners=listeners, data_dir=tmp_path) as second:
        assert second.endpoints[0].port == port


async def test_a_locked_directory_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path) as first:
        with pytest.raises(StartError, match=r"in use by another broker"):
            async with in_process_broker(data_dir=tmp_path):
                pass
        client = await connected(first.endpoints[0].port)
        assert (await client.call(MetadataRequest(topics=[]), 9)).controller_id == 0
        await client.close()


async def test_the_directory_of_another_cluster_or_broker_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(data_dir=tmp_path):
        pass
    meta = tmp_path / "meta.properties"
    ours = meta.read_text()
    meta.write_text(ours.replace("cluster.id=", "cluster.id=x"))
    with pytest.raises(StartError, match="cluster"):
        async with in_process_broker(data_dir=tmp_path):
            pass
    meta.write_text(ours)
    with pytest.raises(StartError, match=r"broker"):
        async with in_process_broker(data_dir=tmp_path, broker_id=7):
            pass
    async with in_process_broker(data_dir=tmp_path) as again:
        assert again.broker_id == 0


async def test_a_start_that_fails_during_log_loading_is_not_a_clean_shutdown(tmp_path: Path) -> None:
    """A clean-shutdown marker would keep logs that were not opened yet from being recovered."""
    async with in_process_broker(data_dir=tmp_path) as broker:
        await broker.controller.topics.create([NewTopic("a", 3, 1)], timeout_ms=10_000)

    class FailsAtTheSecondLog(OsFiles):
        def list_directory(self, path: str) -> list[str]:
            if path.endswith("a-1"):
                raise OSError(5, "the disk fails", path)
            return super().list_directory(path)

    with pytest.raises(StartError, match="the disk fails"):
        async with in_process_broker(data_dir=tmp_path, files=FailsAtTheSecondLog()):
            pass
    assert ".kafka_cleanshutdown" not in os.listdir(tmp_path)
    async with in_process_broker(data_dir=tmp_path) as broker:
        assert broker.metadata.partition_count == 3
    assert ".kafka_cleanshutdown" in os.listdir(tmp_path)


async def test_a_disk_full_at_the_start_is_named_in_the_error(tmp_path: Path) -> None:
    class Full(OsFiles):
        def lock(self, path: str) -> DirectoryLock | None:
            raise OSError(28, "No space left on device")

    with pytest.raises(StartError) as refusal:
        async with in_process_broker(data_dir=tmp_path, files=Full()):
            pass
    assert str(refusal.value) == f"{tmp_path}: No space left on device"
    (tmp_path / "file").touch()
    with pytest.raises(StartError) as refusal:
        async with in_process_broker(data_dir=tmp_path / "file"):
            pass
    assert str(refusal.value) == f"{tmp_path / 'file'}: File exists"


async def test_a_broker_without_an_id_chooses_one_above_1000_and_keeps_it(tmp_path: Path) -> None:
    settings = {"broker.id": -1, "node.id": -1}
    async with in_process_broker(settings, data_dir=tmp_path) as broker:
        chosen = broker.broker_id
        assert chosen > 1000
        assert list(broker.metadata.brokers) == [chosen]
    async with in_process_broker(settings, data_dir=tmp_path) as broker:
        assert broker.broker_id == chosen


async def test_the_start_does_not_sleep() -> None:
    """The start is not timed. It must not sleep, so it completes with a clock that stands still."""
    async with in_process_broker(clock=ManualClock()) as broker:
        client = await connected(broker.endpoints[0].port)
        assert (await client.call(MetadataRequest(topics=[]), 9)).controller_id == 0
        await client.close()


def test_a_broker_in_a_thread_serves_blocking_clients() -> None:
    with BrokerThread(num_partitions=3) as running:
        assert running.data_dir.is_dir()
        assert running.broker.config.num_partitions == 3

        async def create() -> None:
            await running.broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=10_000)

        running.call(create())
        assert running.broker.metadata.topic("t") is not None
    assert not running.data_dir.exists()
    running.stop()


def test_a_broker_in_a_thread_that_cannot_start_raises_the_reason() -> None:
    with pytest.raises(ConfigError, match="NO_SUCH"):
        BrokerThread({"listeners": "NO_SUCH://127.0.0.1:0"}).start()


def test_the_fixture_provides_a_broker(odradek_broker: BrokerThread) -> None:
    host, port = odradek_broker.bootstrap.split(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


def test_connection_limits_come_from_the_settings() -> None:
    config = BrokerConfig.single_node(
        {
            "max.connections": "5",
            "max.connections.per.ip": "3",
            "max.connections.per.ip.overrides": "127.0.0.1:100, ::1:200",
            "socket.request.max.bytes": "1000",
            "connections.max.idle.ms": "7777",
        }
    )
    limits = ConnectionLimits.from_config(config)
    assert limits.max_connections_per_ip_overrides == {"127.0.0.1": 100, "::1": 200}
    assert (limits.max_connections, limits.max_connections_per_ip) == (5, 3)
    assert (limits.max_request_bytes, limits.idle_ms) == (1000, 7777)
    with pytest.raises(ConfigError, match="nonsense"):
        ConnectionLimits.from_config(BrokerConfig.single_node({"max.connections.per.ip.overrides": "nonsense"}))

"""`odradek serve` without ZooKeeper: SIGTERM ends it within ten seconds, and cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.checkpoint import CLEAN_SHUTDOWN
from tests.patience import until
from tests.spawned_broker import SpawnedBroker, start_broker
from tests.wire import requests
from tests.wire.records import connect, produce
from tests.zookeeper import real_zookeeper
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot

IDS = (1, 2, 3)
SECONDS_TO_END = 20
"""Ten, and as much again on a busy machine."""


async def create(bootstrap: str, topic: str) -> None:
    async with await connect(bootstrap) as client:
        response = await client.send(requests.create_assigned(topic, IDS))
    assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message


@contextlib.asynccontextmanager
async def three_brokers(path: Path, connect_string: str) -> AsyncIterator[list[SpawnedBroker]]:
    """Processes, with a topic that all of them have."""
    brokers: list[SpawnedBroker] = []
    try:
        for number in IDS:
            settings = {"broker.id": str(number), "zookeeper.connect": connect_string}
            brokers.append(await asyncio.to_thread(start_broker, path / str(number), settings))
        await create(brokers[0].bootstrap, "t")
        assert await produce(brokers[0].bootstrap, "t", b"before") is ErrorCode.NONE
        yield brokers
    finally:
        for broker in brokers:
            broker.kill()
            broker.close()


async def end_cleanly(path: Path, brokers: list[SpawnedBroker]) -> None:
    """SIGTERM to all of them at the same time."""
    ends = (asyncio.to_thread(broker.terminate, SECONDS_TO_END) for broker in brokers)
    assert await asyncio.gather(*ends) == [0] * len(IDS)
    for number in IDS:
        assert (path / str(number) / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("failure", ["gone", "hung"])
async def test_all_brokers_end_cleanly_when_zookeeper_is_lost(tmp_path: Path, failure: str) -> None:
    model = ZooKeeperModel()
    async with model.served() as address, three_brokers(tmp_path, f"{address}{new_chroot()}") as brokers:
        if failure == "gone":
            model.refuses = True
            model.drop_connections()
        else:
            model.hangs = True
        assert await produce(brokers[0].bootstrap, "t", b"after") is ErrorCode.NONE
        await end_cleanly(tmp_path, brokers)


@pytest.fixture
def own_zookeeper(kafka_control: list[str], tmp_path: Path) -> Iterator[tuple[str, int]]:
    """HOST:PORT and the process id of a ZooKeeper that this test may kill."""
    directory = tmp_path / "zookeeper"
    directory.mkdir()
    with real_zookeeper.running(kafka_control, directory) as address:
        yield address, int((directory / "pid").read_text())


async def test_all_brokers_go_on_and_end_cleanly_when_a_real_zookeeper_is_killed(
    own_zookeeper: tuple[str, int], tmp_path: Path
) -> None:
    address, process = own_zookeeper
    async with three_brokers(tmp_path, address) as brokers:
        os.kill(process, signal.SIGKILL)
        assert await produce(brokers[0].bootstrap, "t", b"after") is ErrorCode.NONE
        await end_cleanly(tmp_path, brokers)


async def test_a_broker_that_waits_for_zookeeper_ends_at_once(tmp_path: Path) -> None:
    model = ZooKeeperModel()
    model.refuses = True
    log = tmp_path / "log"
    async with model.served() as address:
        command = [sys.executable, "-m", "odradek.broker", "--port", "0", "--data-dir", str(tmp_path / "data")]
        command += ["--set", f"zookeeper.connect={address}", "--set", "zookeeper.connection.timeout.ms=600000"]
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(*command, stderr=stderr)
        try:
            await until(lambda: b"no connection to ZooKeeper" in log.read_bytes())
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SECONDS_TO_END):
                assert await process.wait() == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert b"Traceback" not in log.read_bytes()

"""Which metadata store a broker gets for its settings."""

from __future__ import annotations

import asyncio
import random
import sys

import pytest

from odradek.broker.background.background import Background
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.metadata_store.interface import StoreUnavailable
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.start_error import StartError
from tests.memory_files import ForgetfulFiles
from tests.patience import until
from tests.zookeeper.model import ServedConnection, ZooKeeperModel


async def test_a_broker_keeps_its_metadata_in_its_first_log_directory_for_itself() -> None:
    files, background = ForgetfulFiles(), Background()
    config = BrokerConfig.single_node({"log.dirs": "/first,/second"})
    for directory in config.log_dirs:
        files.make_directories(directory)
    store = metadata_store_of(config, files, background, random.Random(1))
    assert not store.is_shared
    await store.open()
    await store.close()
    await background.stop()
    assert files.list_directory("/first")
    assert not files.list_directory("/second")


async def test_a_broker_with_zookeeper_connect_shares_its_metadata() -> None:
    background = Background()
    async with ZooKeeperModel(tick_s=0.5).served() as address:
        config = BrokerConfig.single_node(
            {"zookeeper.connect": f"{address}/kafka", "zookeeper.session.timeout.ms": "3000"}
        )
        store = metadata_store_of(config, ForgetfulFiles(), background, random.Random(1))
        assert store.is_shared
        await store.open()
        await store.create("/brokers")
        await store.close()
        other = metadata_store_of(config, ForgetfulFiles(), background, random.Random(2))
        await other.open()
        assert await other.children("/") == ["brokers"]
        await other.close()
    await background.stop()


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("odradek.broker.metadata_store.zookeeper")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setitem(sys.modules, "kazoo.exceptions", None)
    config = BrokerConfig.single_node({"zookeeper.connect": "127.0.0.1"})
    with pytest.raises(StartError, match=r"pip install 'odradek\[zookeeper\]'"):
        metadata_store_of(config, ForgetfulFiles(), Background(), random.Random(1))


@pytest.mark.parametrize(
    ("settings", "expected_s"),
    [
        ({"zookeeper.session.timeout.ms": "200"}, 0.2),
        ({"zookeeper.session.timeout.ms": "60000", "zookeeper.connection.timeout.ms": "300"}, 0.3),
    ],
)
async def test_a_start_waits_for_zookeeper_as_long_as_the_settings_say(
    settings: dict[str, str], expected_s: float
) -> None:
    background = Background()
    config = BrokerConfig.single_node({"zookeeper.connect": "127.0.0.1:1", **settings})
    store = metadata_store_of(config, ForgetfulFiles(), background, random.Random(1))
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(StoreUnavailable, match=f"in {expected_s * 1000:.0f} ms"):
        await store.open()
    assert loop.time() - began >= expected_s - 0.01
    await background.stop()


@pytest.mark.parametrize("allowed", [3, 10])
async def test_as_many_requests_are_in_flight_as_the_settings_say(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = Background()
    async with ZooKeeperModel(tick_s=0.5).served() as address:
        config = BrokerConfig.single_node(
            {"zookeeper.connect": address, "zookeeper.max.in.flight.requests": str(allowed)}
        )
        store = metadata_store_of(config, ForgetfulFiles(), background, random.Random(1))
        await store.open()
        await store.get("/")
        held: list[tuple[ServedConnection, bytes]] = []
        with monkeypatch.context() as patch:
            patch.setattr(ServedConnection, "send", lambda self, data: held.append((self, data)))
            calls = asyncio.ensure_future(store.entries(["/"] * 20))
            await until(lambda: len(held) >= allowed)
            await asyncio.sleep(0.05)
            assert len(held) == allowed
        for connection, data in held:
            connection.send(data)
        assert len(await calls) == 20
        await store.close()
    await background.stop()

"""What a broker writes to ZooKeeper is what Apache Kafka 3.9.1 writes, byte for byte, null distinct from empty.

The vectors are the entries of Kafka's broker 7 when it is fresh, used, and stopped. Ours does the same, or it does so
alone and is migrated. Ids, times and the port differ. What we do not write (a quota, a user's credentials), the test
writes as Kafka's tools do.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.broker.features.features import first_levels, registered
from odradek.broker.metadata_store import znodes
from odradek.broker.server import Broker
from odradek.cli.__main__ import main
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from odradek.protocol.schema import Message
from odradek.testing import in_process_broker
from tests.wire import requests
from tests.wire.records import connect
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import store_at

VECTORS = Path(__file__).parents[1] / "vectors" / "zookeeper"
TOPIC, BROKER = 2, 4
DIFFERENT = re.compile(r'"(timestamp|id|topic_id)":"[^"]*"')
KAFKAS_PORT = "21092"
FEATURES_OF_3_9 = '{"features":{},"version":2,"status":1}'
WRITTEN_BY_TOOLS = (
    "/config/users/",
    "/config/changes/config_change_0000000003",
    "/config/changes/config_change_0000000004",
)
NOTICE = "/config/changes/"
"""They tell running brokers of a change; no broker runs while it is migrated."""
VERSIONS_DIFFER = {
    "/": "the root of a ZooKeeper counts its children from -1",
    "/brokers/ids/7": "Kafka writes its registration twice",
    "/controller_epoch": "Kafka creates the entry with the epoch 0, and then sets it",
}


class Znode(NamedTuple):
    text: str | None
    ephemeral: bool
    versions: tuple[int, int] | None


def recorded(name: str) -> dict[str, Znode]:
    """Kafka's entries. Its inter.broker.protocol.version was 3.9; ours is 3.0, where features have another version; and
    it had none.
    """
    found = {}
    for line in (VECTORS / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        text = entry["text"] or None if entry["path"] == "/" else entry["text"]
        if entry["path"] == znodes.FEATURE:
            assert text == FEATURES_OF_3_9
            text = znodes.encode_features(first_levels(None)).decode()
        elif entry["path"].startswith(f"{znodes.BROKER_IDS}/"):
            text = _with_our_features(text or "")
        found[entry["path"]] = _znode(
            entry["path"], text, entry["ephemeral"], (entry["version"], entry["childVersion"])
        )
    return found


def _with_our_features(registration: str) -> str:
    features = {name: {"min_version": low, "max_version": high} for name, (low, high) in registered().items()}
    return json.dumps({**json.loads(registration), "features": features}, separators=(",", ":"))


def written(model: ZooKeeperModel, port: str) -> dict[str, Znode]:
    """Our entries."""
    found = {}
    paths = ["/"]
    for path in paths:
        entry = model.tree.get(path)
        assert entry is not None
        text = None if entry.data is None else entry.data.decode().replace(port, KAFKAS_PORT)
        found[path] = _znode(path, text, entry.ephemeral, (entry.version, entry.children_version))
        paths += [f"{path.rstrip('/')}/{name}" for name in model.tree.children(path)]
    return found


def _znode(path: str, text: str | None, ephemeral: bool, versions: tuple[int, int]) -> Znode:
    shown = None if text is None else DIFFERENT.sub(r'"\1":"..."', text)
    return Znode(shown, ephemeral, None if path in VERSIONS_DIFFER else versions)


@pytest.fixture
async def model() -> AsyncIterator[tuple[ZooKeeperModel, str]]:
    model = ZooKeeperModel()
    async with model.served() as address:
        yield model, address


async def ask(broker: Broker, request: Message) -> Any:
    async with await connect(broker.bootstrap) as client:
        return await client.send(request)


async def create(broker: Broker, name: str, partitions: int, **configs: Any) -> None:
    response = await ask(broker, requests.create_topics(name, partitions=partitions, **configs))
    assert [each.error_code for each in response.topics] == [0]


async def set_config(broker: Broker, kind: int, name: str, setting: str, value: str) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    response = await ask(broker, IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each.error_code for each in response.responses] == [0]


async def use(broker: Broker) -> None:
    """What was done to Kafka's broker."""
    await create(broker, "orders", 3, cleanup_policy="compact")
    await create(broker, "doomed", 1)
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=4, assignments=None)
    response = await ask(broker, CreatePartitionsRequest(topics=[grown], timeout_ms=10_000))
    assert [each.error_code for each in response.results] == [0]
    await set_config(broker, TOPIC, "orders", "retention.ms", "1000000")
    await set_config(broker, BROKER, "7", "log.cleaner.threads", "2")
    await set_config(broker, BROKER, "", "message.max.bytes", "2000000")
    doomed = DeleteTopicsRequest.DeleteTopicState(name="doomed")
    response = await ask(broker, DeleteTopicsRequest(topics=[doomed], timeout_ms=10_000))
    assert [each.error_code for each in response.responses] == [0]
    await ask(broker, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))


async def use_tools(address: str) -> None:
    """Kafka's ConfigCommand: a user's credentials and a quota."""
    tool = store_at(address)
    await tool.open()
    entries = [json.loads(line) for line in (VECTORS / "used.jsonl").read_text().splitlines()]
    for entry in entries:
        if entry["path"].startswith(WRITTEN_BY_TOOLS):
            data = None if entry["text"] is None else entry["text"].encode()
            await tool.create(entry["path"], data)
            for _ in range(entry["version"]):
                await tool.set(entry["path"], data)
    await tool.close()


async def test_a_broker_leaves_the_entries_that_kafka_leaves(model: tuple[ZooKeeperModel, str]) -> None:
    tree, address = model
    settings = {"zookeeper.connect": address, "broker.id": 7, "broker.rack": "rack-7"}
    async with in_process_broker(settings) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        assert written(tree, port) == recorded("fresh")
        await use(broker)
        await use_tools(address)
        assert written(tree, port) == recorded("used")
    assert written(tree, port) == {**recorded("stopped"), "/": written(tree, port)["/"]}


async def test_a_migrated_node_leaves_the_entries_that_kafka_leaves(
    model: tuple[ZooKeeperModel, str], tmp_path: Path
) -> None:
    """It was alone when it did the same. Versions begin anew."""
    tree, address = model
    async with in_process_broker({"broker.id": 7, "broker.rack": "rack-7"}, data_dir=tmp_path) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        await use(broker)
    command = ["cluster", "migrate", "--data-dir", str(tmp_path), "--zookeeper-connect", address]
    assert await asyncio.to_thread(main, command) == 0
    stopped = {
        path: entry.text
        for path, entry in recorded("stopped").items()
        if not path.startswith((*WRITTEN_BY_TOOLS, NOTICE))
    }
    assert {path: entry.text for path, entry in written(tree, port).items()} == stopped
    assert not any(entry.ephemeral for entry in written(tree, port).values())

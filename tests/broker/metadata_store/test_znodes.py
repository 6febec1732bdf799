import json
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.kafka_uuid import parse_uuid, uuid_text
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import StoreDamaged
from odradek.protocol.schema import Versions
from tests.broker.controller.harness import ControllerHarness

VECTORS = Path(__file__).parents[2] / "vectors" / "zookeeper"


def znodes_of(name: str) -> dict[str, dict[str, Any]]:
    lines = (VECTORS / f"{name}.jsonl").read_text().splitlines()
    return {entry["path"]: entry for entry in map(json.loads, lines)}


def data_of(entry: dict[str, Any]) -> bytes | None:
    return None if entry["text"] is None else entry["text"].encode()


def test_kafkas_topic_and_state_values_decode_and_encode_to_the_same_value() -> None:
    used = znodes_of("used")
    raw = data_of(used["/brokers/topics/orders"])
    topic_id, replicas, adding, removing = znodes.parse_topic("orders", raw)
    assert replicas == dict.fromkeys(range(4), (7,))
    assert topic_id is not None
    assert uuid_text(topic_id) == "vzhfcaZqRA-I9DmWPy89Qg"
    assert (adding, removing) == ({}, {})
    entry = used[znodes.state_path("orders", 3)]
    state = znodes.parse_state("orders", 3, (7,), data_of(entry), entry["version"])
    states = [state._replace(partition=number) for number in replicas]
    assert json.loads(znodes.encode_topic(topic_id, states)) == json.loads(raw or b"")
    assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (7, 0, (7,), 1)
    assert json.loads(znodes.encode_state(state)) == json.loads(entry["text"])


def test_kafkas_other_values_decode_and_encode_to_the_same_value() -> None:
    used = znodes_of("used")
    for path in ("/config/topics/orders", "/config/brokers/7", "/config/brokers/<default>"):
        raw = data_of(used[path])
        assert json.loads(znodes.encode_config(znodes.parse_config(path, raw))) == json.loads(raw or b"")
    assert znodes.parse_producer_id_block(data_of(used[znodes.PRODUCER_ID_BLOCK]) or b"") == (0, 999)
    block = znodes.encode_producer_id_block(7, 0, 999)
    assert json.loads(block) == json.loads(used[znodes.PRODUCER_ID_BLOCK]["text"])
    assert znodes.parse_cluster_id(data_of(used[znodes.CLUSTER_ID])) == "nlQg0zzARJuGzyqjahpCMg"
    assert json.loads(znodes.encode_cluster_id("nlQg0zzARJuGzyqjahpCMg")) == json.loads(used[znodes.CLUSTER_ID]["text"])
    assert znodes.parse_epoch(znodes.CONTROLLER_EPOCH, data_of(used[znodes.CONTROLLER_EPOCH])) == 1
    controller = json.loads(used[znodes.CONTROLLER]["text"])
    assert json.loads(znodes.encode_controller(7, int(controller["timestamp"]))) == controller


def test_kafkas_broker_registration_decodes_and_encodes_to_the_same_value() -> None:
    entry = znodes_of("used")[znodes.broker_path(7)]
    broker = znodes.parse_broker(7, data_of(entry), 3)
    assert broker == BrokerInfo(7, {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "127.0.0.1", 21092)}, "rack-7", 3)
    value = json.loads(entry["text"])
    assert json.loads(znodes.encode_broker(broker, int(value["timestamp"]))) == value


def test_a_registration_keeps_ipv6_addresses_and_several_listeners() -> None:
    endpoints = {
        "INSIDE": BrokerEndpoint("INSIDE", "::1", 9092, "PLAINTEXT"),
        "OUTSIDE": BrokerEndpoint("OUTSIDE", "example.org", 443, "SSL"),
    }
    broker = BrokerInfo(1, endpoints, None, 5)
    assert znodes.parse_broker(1, znodes.encode_broker(broker, 0), 5) == broker


def test_a_registration_has_the_features_in_kafkas_form() -> None:
    endpoints = {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "example.org", 9092)}
    broker = BrokerInfo(1, endpoints, None, 5, {"group.version": Versions(0, 1)})
    data = znodes.encode_broker(broker, 0)
    assert json.loads(data)["features"] == {"group.version": {"min_version": 0, "max_version": 1}}
    assert znodes.parse_broker(1, data, 5) == broker
    without = {name: value for name, value in json.loads(data).items() if name != "features"}
    assert znodes.parse_broker(1, json.dumps(without).encode(), 5).features == {}
    for damaged in ({"group.version": {"min_version": 0}}, {"group.version": 1}, [1], {"f": {"min_version": "x"}}):
        with pytest.raises(StoreDamaged):
            znodes.parse_broker(1, json.dumps({**without, "features": damaged}).encode(), 5)


async def test_a_new_store_has_the_paths_of_a_fresh_kafka() -> None:
    harness = await ControllerHarness().start()
    fresh = znodes_of("fresh")
    for path, entry in fresh.items():
        found = await harness.store.get(path)
        assert (found.ephemeral, found.data is None) == (entry["ephemeral"], entry["text"] in (None, "")), path


@pytest.mark.parametrize(
    "data", [None, b"", b"{}", b"[]", b"no json", b'{"partitions":{"0":7}}', b'{"partitions":{"1":[7]}}']
)
def test_an_undecodable_value_is_damage_with_its_path(data: bytes | None) -> None:
    with pytest.raises(StoreDamaged, match="/brokers/topics/t: "):
        znodes.parse_topic("t", data)


def test_ids_are_kafkas_22_characters() -> None:
    text = "vzhfcaZqRA-I9DmWPy89Qg"
    assert uuid_text(parse_uuid(text)) == text
    for wrong in ("", "vzhfcaZqRA", text + "A", "vzhfcaZqRA+I9DmWPy89Qg", "ü" * 22):
        with pytest.raises(ValueError, match="id"):
            parse_uuid(wrong)

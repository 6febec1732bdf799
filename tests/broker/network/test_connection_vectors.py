"""Raw bytes on a fresh connection get the same responses as from Apache Kafka 3.9.1 (KRaft).

Texts, addresses and ids are not compared. Everything else that differs is listed here with its reason.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.headers import response_header_version
from odradek.protocol.messages.registry import response_class
from odradek.protocol.schema import Message
from odradek.testing import in_process_broker
from tests.wire.frames import framed
from tests.wire.raw_client import RawClient, raw_client

VECTORS = [
    json.loads(line) for line in (Path(__file__).parents[2] / "vectors" / "connections.jsonl").read_text().splitlines()
]
NOT_COMPARED = {
    "api_keys",  # fewer APIs
    "supported_features",  # those of Kafka 4.4
    "finalized_features",
    "finalized_features_epoch",
    "error_message",
    "auth_bytes",
    "node_id",
    "controller_id",
    "host",
    "port",
}
OTHERWISE = {
    "api_versions_v5": ("closed", "Kafka 4.4 has this version, whose body is longer"),
    "produce_null_records_known_topic": ("answered", "INVALID_RECORD instead of silence until the client gives up"),
    "produce_acks_0_null_records_known_topic": ("closed", "the connection ends instead of silence"),
    "create_topics_v1_same_name_twice": ("answered", "once for each time it was asked, as in ZooKeeper mode"),
}
COORDINATOR_SETTINGS = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
NEWEST_API_VERSIONS = 5
API_VERSIONS_V0 = bytes.fromhex("0000000b0012000000000007000163")


async def ask(client: RawClient, frame: bytes) -> tuple[str, bytes]:
    """Returns `answered` with the response, including its length, or `closed`."""
    client.send(frame)
    response = await client.frame()
    return ("closed", b"") if response is None else ("answered", framed(response))


def read_answer(frame: bytes, answer: bytes) -> Message:
    api_key, api_version = struct.unpack_from(">hh", frame, 4)
    if api_key == ApiKey.API_VERSIONS and not 0 <= api_version <= NEWEST_API_VERSIONS:
        api_version = 0
    position = 8 + response_header_version(api_key, api_version)
    return decode(response_class(api_key), api_version, answer, position)


def compared(value: Any) -> Any:
    if isinstance(value, Message):
        return {name: compared(getattr(value, name)) for name in value.__slots__ if name not in NOT_COMPARED}
    if isinstance(value, list):
        return [compared(element) for element in value]
    return value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
async def test_raw_bytes_are_answered_as_kafka_answers_them(vector: dict[str, str]) -> None:
    frame = bytes.fromhex(vector["send"])
    async with in_process_broker(COORDINATOR_SETTINGS) as broker:
        await broker.controller.topics.create([NewTopic("known", 1, 1)], timeout_ms=10_000)
        if any(part in vector["name"] for part in ("group", "offset_", "txn")):
            await broker.coordinators.internal_topics.ensure(GROUP_TOPIC)  # Kafka's broker had its coordinator ready
            await broker.coordinators.internal_topics.ensure(TRANSACTION_TOPIC)
        async with raw_client(broker.endpoints[0].port) as client:
            outcome, answer = await ask(client, frame)
            if outcome == "answered":
                assert (await ask(client, API_VERSIONS_V0))[0] == "answered"
    expected = vector["outcome"], None
    found = outcome, None
    if outcome == vector["outcome"] == "answered":
        found = outcome, compared(read_answer(frame, answer))
        expected = outcome, compared(read_answer(frame, bytes.fromhex(vector["receive"])))
    if vector["name"] in OTHERWISE:
        assert outcome == OTHERWISE[vector["name"]][0]
        assert found != expected, "a listed difference no longer exists"
    else:
        assert found == expected


def test_every_listed_difference_names_a_vector() -> None:
    assert OTHERWISE.keys() <= {vector["name"] for vector in VECTORS}


async def test_the_refusal_of_an_api_versions_version_names_the_range_of_the_release() -> None:
    vector = next(vector for vector in VECTORS if vector["name"] == "api_versions_v5")
    async with in_process_broker(odradek_as_version="3.9") as broker, raw_client(broker.endpoints[0].port) as client:
        _, answer = await ask(client, bytes.fromhex(vector["send"]))
    assert answer.hex() == vector["receive"]

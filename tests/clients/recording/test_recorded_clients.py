"""Odradek answers recorded clients as Apache Kafka did, but for what docs/differences.md lists."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.clients.network_client import NetworkClient
from odradek.clients.recording.recording_file import Kind
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.testing import in_process_broker, replayed
from tests.clients.recording.known import KNOWN, unexplained
from tests.clients.recording.proxied import entries_of, frames_of
from tests.clients.recording.recorded_clients import CLIENTS, RECORDINGS, SETTINGS
from tests.patience import until

COMMON = frozenset({"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "SyncGroup"})
IN_TRANSACTIONS = COMMON | {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}
OF_NEWER_GROUPS = frozenset(
    {
        "ApiVersions",
        "Metadata",
        "Produce",
        "Fetch",
        "ConsumerGroupHeartbeat",
        "OffsetCommit",
        "InitProducerId",
        "EndTxn",
    }
)
WHAT_THEY_SEND = {
    **dict.fromkeys((*CLIENTS, "faststream"), COMMON | {"OffsetCommit"}),
    "spring": IN_TRANSACTIONS | {"OffsetCommit", "DescribeTopicPartitions"},
    "streams": IN_TRANSACTIONS | {"DescribeTopicPartitions"},
    "librdkafka-4.4": OF_NEWER_GROUPS | {"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"},
    "java-4.4": OF_NEWER_GROUPS,
}


def test_each_client_and_application_has_a_recording() -> None:
    assert {file.stem for file in RECORDINGS.glob("*.rec")} == set(WHAT_THEY_SEND)


@pytest.mark.parametrize("client", WHAT_THEY_SEND)
async def test_a_recorded_client_gets_the_answers_of_kafka(client: str) -> None:
    async with in_process_broker(SETTINGS) as broker:
        await coordinators_serve(broker.bootstrap)
        differences = await asyncio.to_thread(replayed, RECORDINGS / f"{client}.rec", broker.bootstrap)
    assert not unexplained(differences), "\n".join(unexplained(differences))
    met = {known for known in KNOWN if any(known.explains(difference) for difference in differences)}
    assert {known for known in KNOWN if client in known.clients} == met
    assert [difference for difference in differences if "not sent" in difference] == []


async def coordinators_serve(bootstrap: str) -> None:
    """As when the clients were recorded: both internal topics exist. Every release has version 1."""
    host, _, port = bootstrap.rpartition(":")
    async with await NetworkClient.connect(host, int(port)) as client:
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, key="any")

            async def serves(request: FindCoordinatorRequest = request) -> bool:
                answer: FindCoordinatorResponse = await client.send(request, version=1)
                return answer.error_code == ErrorCode.NONE

            await until(serves)


@pytest.mark.parametrize("client", WHAT_THEY_SEND)
def test_a_recording_has_the_apis_of_a_client(client: str) -> None:
    file: Path = RECORDINGS / f"{client}.rec"
    passed = {one.asked.api_name for one in frames_of(file) if one.asked is not None}
    assert WHAT_THEY_SEND[client] <= passed
    assert any(entry.kind is Kind.OPENED for entry in entries_of(file))

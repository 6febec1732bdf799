"""Ids of a recording become those of the target in requests, and back in answers."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from odradek.clients.recording.identities import Identities
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.records import Record, build_batch, check_crc, iter_batches

THERE, HERE = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def metadata(node_id: int, epoch: int, topic_id: str, cluster: str) -> dict[str, Any]:
    partitions = [
        {"PartitionIndex": index, "LeaderId": node_id, "LeaderEpoch": epoch + index, "ReplicaNodes": [node_id]}
        for index in range(2)
    ]
    return {
        "Brokers": [{"NodeId": node_id, "Host": "kafka", "Port": 9092}],
        "ClusterId": cluster,
        "ControllerId": node_id,
        "Topics": [{"Name": "orders", "TopicId": topic_id, "Partitions": partitions}],
    }


@pytest.fixture
def identities() -> Identities:
    """It has learned from Metadata: broker 1 is broker 0 here, epochs 17 and 18 are 3 and 4."""
    names = TopicNames()
    recorded, answered = metadata(1, 17, THERE, "there"), metadata(0, 3, HERE, "here")
    for document in (recorded, answered):
        names.learn(document)
    learned = Identities(names)
    learned.learn(recorded, answered, connection=1)
    return learned


def fetch(topic_id: str, epochs: tuple[int, int], session: int, cluster: str) -> dict[str, Any]:
    partitions = [{"Partition": index, "CurrentLeaderEpoch": epoch} for index, epoch in enumerate(epochs)]
    return {"ClusterId": cluster, "SessionId": session, "Topics": [{"TopicId": topic_id, "Partitions": partitions}]}


def test_topics_epochs_and_clusters_of_a_fetch_are_those_of_the_target(identities: Identities) -> None:
    recorded = fetch(THERE, (17, 18), 0, "there")
    assert identities.to_target(recorded, 1) == fetch(HERE, (3, 4), 0, "here")
    assert identities.to_recording(fetch(HERE, (3, 4), 0, "here"), 1) == recorded


def test_sessions_are_those_of_their_connection(identities: Identities) -> None:
    identities.learn({"SessionId": 77}, {"SessionId": 88}, connection=1)
    identities.learn({"SessionId": 77}, {"SessionId": 99}, connection=2)
    assert [identities.to_target({"SessionId": 77}, connection)["SessionId"] for connection in (1, 2, 3)] == [
        88,
        99,
        77,
    ]


def test_generations_are_those_of_their_group(identities: Identities) -> None:
    identities.learn({"GenerationId": 5}, {"GenerationId": 1}, 1, "readers")
    assert identities.to_target({"GroupId": "readers", "GenerationId": 5}, 2)["GenerationId"] == 1
    assert identities.to_target({"GroupId": "others", "GenerationId": 5}, 2)["GenerationId"] == 5
    assert identities.to_target({"GroupId": "readers", "GenerationIdOrMemberEpoch": 5}, 2) == {
        "GroupId": "readers",
        "GenerationIdOrMemberEpoch": 1,
    }


def test_brokers_are_known_by_their_ids_also_as_resources(identities: Identities) -> None:
    request = {"Resources": [{"ResourceType": 4, "ResourceName": "1"}, {"ResourceType": 2, "ResourceName": "1"}]}
    changed = identities.to_target(request, 1)
    assert [resource["ResourceName"] for resource in changed["Resources"]] == ["0", "1"]
    assert identities.to_target({"Assignments": [{"PartitionIndex": 0, "BrokerIds": [1, 1]}]}, 1) == {
        "Assignments": [{"PartitionIndex": 0, "BrokerIds": [0, 0]}]
    }


def test_another_leader_is_not_another_broker(identities: Identities) -> None:
    identities.learn({"LeaderId": 2}, {"LeaderId": 5}, 1)
    assert identities.to_recording({"LeaderId": 5}, 1) == {"LeaderId": 5}


def test_batches_get_the_producer_of_the_target_and_a_new_checksum(identities: Identities) -> None:
    identities.learn({"ProducerId": 4000}, {"ProducerId": 12}, 1)
    records = [Record(0, 1, None, b"value")]
    batches = [build_batch(records, producer_id=4000, producer_epoch=0, base_sequence=0), build_batch(records)]
    request = {"Name": "orders", "Records": base64.b64encode(b"".join(batches)).decode()}
    changed = base64.b64decode(identities.to_target(request, 1)["Records"])
    found = list(iter_batches(changed))
    assert [header.producer_id for _, header in found] == [12, -1]
    assert all(check_crc(changed, position, header) for position, header in found)


def test_records_that_are_no_batches_stay_as_they_are(identities: Identities) -> None:
    old_message_set = bytes(8) + (14).to_bytes(4, "big") + bytes(14)
    for data in (old_message_set, b"\xff" * 40):
        records = base64.b64encode(data).decode()
        assert identities.to_target({"Records": records}, 1) == {"Records": records}


def test_what_is_no_id_is_not_learned(identities: Identities) -> None:
    for nothing, something in ((-1, 7), (7, -1)):
        identities.learn({"ProducerId": nothing}, {"ProducerId": something}, 1)
    identities.learn({"MemberId": ""}, {"MemberId": "a"}, 1)
    assert identities.to_target({"ProducerId": -1, "MemberId": ""}, 1) == {"ProducerId": -1, "MemberId": ""}
    assert identities.to_recording({"ProducerId": 7, "MemberId": "a"}, 1) == {"ProducerId": 7, "MemberId": "a"}


def test_the_first_pair_holds(identities: Identities) -> None:
    identities.learn({"MemberId": "there-1"}, {"MemberId": "here-1"}, 1)
    identities.learn({"MemberId": "there-1"}, {"MemberId": "here-2"}, 1)
    assert identities.to_target({"MemberId": "there-1"}, 1) == {"MemberId": "here-1"}
    assert identities.to_recording({"MemberId": "here-2"}, 1) == {"MemberId": "here-2"}

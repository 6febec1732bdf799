"""The largest requests of real clients stay within the memory and the bytes that a request may take."""

from __future__ import annotations

import pytest

from odradek.broker.background.stepwise import finished, memory_of_request
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.protocol.compiler import encode, reader_in_steps
from odradek.protocol.element_sizes import answered_bytes
from odradek.protocol.messages.configs import DescribeConfigsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.groups import JoinGroupRequest, SyncGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.registry import response_class
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.messages.transactions import TxnOffsetCommitRequest, WriteTxnMarkersRequest
from odradek.protocol.schema import Message
from tests.table_settings import of_table

PARTITIONS = 10_000
NAMES = [f"topic-{number}" for number in range(100_000)]
COMMIT, FETCH, TXN = OffsetCommitRequest, FetchRequest, TxnOffsetCommitRequest
MARKER = WriteTxnMarkersRequest.WritableTxnMarker
CREATED, ASSIGNED = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableReplicaAssignment
RESOURCE = DescribeConfigsRequest.DescribeConfigsResource
ASSIGNMENT = SyncGroupRequest.SyncGroupRequestAssignment

LARGE: dict[str, tuple[Message, int]] = {
    "Fetch": (
        FETCH(
            topics=[
                FETCH.FetchTopic(
                    topic=NAMES[each], partitions=[FETCH.FetchPartition(partition=300, fetch_offset=1 << 40)]
                )
                for each in range(PARTITIONS)
            ]
        ),
        12,
    ),
    "OffsetCommit": (
        COMMIT(
            group_id="g",
            topics=[
                COMMIT.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        COMMIT.OffsetCommitRequestPartition(
                            partition_index=300 + each, committed_offset=1 << 40, committed_metadata="m" * 40
                        )
                        for each in range(10)
                    ],
                )
                for name in NAMES[: PARTITIONS // 10]
            ],
        ),
        8,
    ),
    "OffsetFetch": (
        OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(50_000)))],
        ),
        7,
    ),
    "TxnOffsetCommit": (
        TXN(
            topics=[
                TXN.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[TXN.TxnOffsetCommitRequestPartition(partition_index=i) for i in range(PARTITIONS)],
                )
            ]
        ),
        3,
    ),
    "Metadata": (
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES]),
        11,
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=2, resource_name=name, configuration_keys=None
                )
                for name in NAMES
            ]
        ),
        4,
    ),
    "DescribeGroups": (DescribeGroupsRequest(groups=NAMES * 3), 5),
    "CreateTopics": (
        CreateTopicsRequest(
            topics=[
                CREATED(
                    name="t",
                    assignments=[ASSIGNED(partition_index=i, broker_ids=[1, 2, 3]) for i in range(PARTITIONS)],
                )
            ]
        ),
        5,
    ),
    "WriteTxnMarkers": (
        WriteTxnMarkersRequest(
            markers=[
                MARKER(
                    producer_id=1 << 40,
                    topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[1, 2, 3])],
                )
                for _ in range(PARTITIONS)
            ]
        ),
        1,
    ),
    "SyncGroup": (
        SyncGroupRequest(assignments=[ASSIGNMENT(member_id=NAMES[i], assignment=bytes(12_000)) for i in range(1000)]),
        5,
    ),
    "JoinGroup": (
        JoinGroupRequest(protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="sticky", metadata=bytes(4 << 20))]),
        7,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_largest_requests_of_real_clients_are_decoded(name: str) -> None:
    request, version = LARGE[name]
    data = encode(request, version)
    assert len(data) < of_table(ConnectionLimits).max_other_request_bytes
    answered = answered_bytes(response_class(request.__schema__.api_key or 0))
    read, _ = finished(reader_in_steps(type(request), version, answered)(data, 0, memory_of_request(len(data))))
    assert read == request

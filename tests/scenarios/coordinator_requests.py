"""Requests to the coordinators over plain sockets; sent and received separately if a kill comes in between."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from odradek.protocol.compiler import decode, read
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import ResponseHeader, response_header_version
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.groups import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from odradek.protocol.schema import Message
from tests.scenarios.raw_client import RawClient, request_payload

R = TypeVar("R", bound=Message)
VERSIONS = {
    "FindCoordinatorRequest": 2,
    "JoinGroupRequest": 5,
    "SyncGroupRequest": 3,
    "HeartbeatRequest": 3,
    "LeaveGroupRequest": 3,
    "DescribeGroupsRequest": 4,
    "OffsetCommitRequest": 7,
    "OffsetFetchRequest": 7,
    "InitProducerIdRequest": 3,
    "AddPartitionsToTxnRequest": 2,
    "AddOffsetsToTxnRequest": 2,
    "TxnOffsetCommitRequest": 2,
    "EndTxnRequest": 2,
    "DescribeTransactionsRequest": 0,
    "ListOffsetsRequest": 5,
    "ProduceRequest": 8,
    "CreateTopicsRequest": 2,
    "DeleteTopicsRequest": 3,
    "ElectLeadersRequest": 1,
    "MetadataRequest": 8,
    "AlterPartitionReassignmentsRequest": 0,
    "DescribeConfigsRequest": 1,
    "DescribeLogDirsRequest": 1,
    "IncrementalAlterConfigsRequest": 1,
}
LONG_MS = 1_800_000
"""The longest session timeout: these members send no heartbeats."""
GIVE_UP_S = 30
LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)


class Connection:
    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap, GIVE_UP_S)

    def close(self) -> None:
        self._client.socket.close()

    def send(self, request: Message) -> None:
        self._client.send(request_payload(request, VERSIONS[type(request).__name__]))

    def receive(self, request: Message, response: type[R]) -> R:
        version = VERSIONS[type(request).__name__]
        key = request.__schema__.api_key
        assert key is not None
        frame = self._client.receive()
        _, position = read(ResponseHeader, response_header_version(key, version), frame)
        return decode(response, version, frame, position)

    def call(self, request: Message, response: type[R]) -> R:
        self.send(request)
        return self.receive(request, response)


def join(group: str, member_id: str, metadata: bytes = bytes(10)) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def sync(group: str, generation: int, member_id: str, assignments: dict[str, bytes]) -> SyncGroupRequest:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[assignment(member_id=who, assignment=what) for who, what in assignments.items()],
    )


def leave(group: str, members: Iterable[str]) -> LeaveGroupRequest:
    identity = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(group_id=group, members=[identity(member_id=m, group_instance_id=None) for m in members])


def commit(group: str, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
    each = OffsetCommitRequest.OffsetCommitRequestPartition
    offsets = [each(partition_index=partition, committed_offset=offset, committed_metadata="")]
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=offsets)
    return OffsetCommitRequest(group_id=group, topics=[of_topic])


def init(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=900_000)


def add_partition(transactional_id: str, producer: tuple[int, int], topic: str, part: int) -> AddPartitionsToTxnRequest:
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[part])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[added],
    )


def add_offsets(transactional_id: str, producer: tuple[int, int], group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group
    )


def commit_offset(
    transactional_id: str, producer: tuple[int, int], group: str, topic: str, partition: int, offset: int
) -> TxnOffsetCommitRequest:
    each = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    offsets = [each(partition_index=partition, committed_offset=offset, committed_metadata="")]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=offsets)],
    )


def end(transactional_id: str, producer: tuple[int, int], committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )


def until_loaded(connection: Connection, request: Message, response: type[R], error: str) -> R:
    """Retries until the field `error` of the response (see `field_of`) is no error of a loading coordinator."""
    give_up = time.monotonic() + GIVE_UP_S
    while True:
        answer = connection.call(request, response)
        code = field_of(answer, error)
        if code not in LOADING:
            return answer
        assert time.monotonic() < give_up, f"{ErrorCode.of(code).name} for {GIVE_UP_S} s"
        time.sleep(0.01)


def field_of(answer: object, path: str) -> int:
    """A number in a response; arrays on its path have one item each."""
    for name in path.split("."):
        answer = getattr(answer, name)
        if isinstance(answer, list):
            assert len(answer) == 1, answer
            answer = answer[0]
    assert isinstance(answer, int)
    return answer


def find_coordinators(connection: Connection) -> None:
    for key_type in range(2):
        until_loaded(
            connection, FindCoordinatorRequest(key="k", key_type=key_type), FindCoordinatorResponse, "error_code"
        )


def described(connection: Connection, group: str) -> DescribeGroupsResponse.DescribedGroup:
    answer = until_loaded(
        connection, DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, "groups.error_code"
    )
    return answer.groups[0]


def committed(connection: Connection, group: str, topic: str, partition: int) -> int:
    """The stable committed offset, -1 if there is none."""
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
    request = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=False)
    answer = until_loaded(connection, request, OffsetFetchResponse, "error_code")
    return field_of(answer, "topics.partitions.committed_offset")


def end_offset(connection: Connection, topic: str, partition: int, isolation_level: int) -> int:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    of_topic = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[of_topic])
    answer = connection.call(request, ListOffsetsResponse)
    assert field_of(answer, "topics.partitions.error_code") == 0
    return field_of(answer, "topics.partitions.offset")

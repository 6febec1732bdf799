"""The versions that the simulated clients speak, and their Fetch requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.clients.logins import AUTHENTICATE_VERSION, HANDSHAKE_VERSION
from odradek.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.features import UpdateFeaturesRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.producers import AllocateProducerIdsRequest, InitProducerIdRequest
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.messages.replica_control import AlterPartitionRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType

VERSIONS: Mapping[type[Message], int] = {
    ProduceRequest: 9,
    FetchRequest: 12,
    ListOffsetsRequest: 7,
    MetadataRequest: 11,
    OffsetCommitRequest: 8,
    OffsetFetchRequest: 7,
    OffsetDeleteRequest: 0,
    FindCoordinatorRequest: 3,
    JoinGroupRequest: 9,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 4,
    SyncGroupRequest: 5,
    CreateTopicsRequest: 7,
    DeleteTopicsRequest: 5,
    CreatePartitionsRequest: 3,
    AlterPartitionReassignmentsRequest: 0,
    AlterPartitionRequest: 0,
    ListPartitionReassignmentsRequest: 0,
    InitProducerIdRequest: 4,
    AllocateProducerIdsRequest: 0,
    OffsetForLeaderEpochRequest: 4,
    AddPartitionsToTxnRequest: 3,
    AddOffsetsToTxnRequest: 3,
    DeleteRecordsRequest: 2,
    ElectLeadersRequest: 2,
    IncrementalAlterConfigsRequest: 1,
    AlterReplicaLogDirsRequest: 2,
    EndTxnRequest: 3,
    TxnOffsetCommitRequest: 3,
    SaslHandshakeRequest: HANDSHAKE_VERSION,
    SaslAuthenticateRequest: AUTHENTICATE_VERSION,
    CreateAclsRequest: 3,
    DescribeAclsRequest: 3,
    DeleteAclsRequest: 3,
    AlterUserScramCredentialsRequest: 0,
    ConsumerGroupHeartbeatRequest: 1,
    UpdateFeaturesRequest: 1,
}
"""No negotiation: all brokers of a simulation have the same versions."""
LAST_WITH_RETENTION = 4
"""The last version of OffsetCommit that names how long the offsets are to be kept."""


def version_of(message: Message) -> int:
    """The version in which a request is sent."""
    if isinstance(message, OffsetCommitRequest) and message.retention_time_ms >= 0:
        return LAST_WITH_RETENTION
    return VERSIONS[type(message)]


class FetchFrom(NamedTuple):
    """Where a partition is to be read from; an epoch of -1 is not checked."""

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class Session(NamedTuple):
    """A fetch session and the epoch of the next request in it. By default: none is wanted."""

    id: int = 0
    epoch: int = -1


def fetch_request(
    wanted: Mapping[TopicPartition, FetchFrom],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int,
    session: Session = Session(),  # noqa: B008
    forgotten: Iterable[TopicPartition] = (),
    rack_id: str = "",
) -> FetchRequest:
    """A consumer's fetch."""
    topics: dict[str, list[FetchRequest.FetchPartition]] = {}
    for partition, start in wanted.items():
        topics.setdefault(partition.topic, []).append(
            FetchRequest.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=start.current_leader_epoch,
                fetch_offset=start.offset,
                last_fetched_epoch=start.last_fetched_epoch,
                log_start_offset=start.log_start_offset,
                partition_max_bytes=start.max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session.id,
        session_epoch=session.epoch,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(forgotten).items()
        ],
        rack_id=rack_id,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions by topic, in order."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def in_rounds(partitions: Sequence[TopicPartition], members: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Assigns partitions to members in turn, as the round-robin assignor of one topic."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for number, partition in enumerate(sorted(partitions)):
        assigned[members[number % len(members)]].append(partition)
    return assigned


def elect_leaders(election: ElectionType, partitions: Collection[TopicPartition] | None) -> ElectLeadersRequest:
    """An operator's request for leaders of these partitions. None: of all."""
    topics = None if partitions is None else by_topic(partitions)
    return ElectLeadersRequest(
        election_type=election,
        topic_partitions=None
        if topics is None
        else [
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()
        ],
        timeout_ms=2000,
    )

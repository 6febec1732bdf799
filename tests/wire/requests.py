"""Requests of clients, most of them for one partition, and the versions that blocking clients speak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DescribeGroupsRequest
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from odradek.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

VERSIONS: Mapping[type[Message], int] = {
    FindCoordinatorRequest: 2,
    JoinGroupRequest: 5,
    SyncGroupRequest: 3,
    HeartbeatRequest: 3,
    LeaveGroupRequest: 3,
    DescribeGroupsRequest: 4,
    OffsetCommitRequest: 7,
    OffsetFetchRequest: 7,
    InitProducerIdRequest: 3,
    AddPartitionsToTxnRequest: 2,
    AddOffsetsToTxnRequest: 2,
    TxnOffsetCommitRequest: 2,
    EndTxnRequest: 2,
    DescribeTransactionsRequest: 0,
    ListOffsetsRequest: 5,
    ProduceRequest: 8,
    FetchRequest: 11,
    CreateTopicsRequest: 5,
    DeleteTopicsRequest: 3,
    ElectLeadersRequest: 1,
    MetadataRequest: 8,
    AlterPartitionReassignmentsRequest: 0,
    DescribeConfigsRequest: 1,
    DescribeLogDirsRequest: 1,
    IncrementalAlterConfigsRequest: 1,
}
LONG_MS = 1_800_000
"""The longest session timeout: these members send no heartbeats."""
DEADLINE_MS = 120_000
MOST_BYTES = 1 << 20


def assigned_topic(name: str, *assignments: Iterable[int]) -> CreateTopicsRequest.CreatableTopic:
    """A topic with these replicas, by partition."""
    assigned = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
        for number, replicas in enumerate(assignments)
    ]
    return CreateTopicsRequest.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned)


def create_assigned(name: str, *assignments: Iterable[int]) -> CreateTopicsRequest:
    """See `assigned_topic`."""
    return CreateTopicsRequest(topics=[assigned_topic(name, *assignments)], timeout_ms=DEADLINE_MS)


def create_topics(*names: str, partitions: int = 1, replicas: int = 1, **configs: Any) -> CreateTopicsRequest:
    """`configs`: settings of all topics, with _ for the dots of their names."""
    settings = [
        CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=str(value))
        for name, value in configs.items()
    ]
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=list(settings)
        )
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=DEADLINE_MS)


def produce_batches(
    batches: Mapping[TopicPartition, bytes | None],
    *,
    acks: int = -1,
    timeout_ms: int = DEADLINE_MS,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One batch for each of some partitions, topics in the order of their first partitions."""
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for (name, number), records in batches.items():
        data = ProduceRequest.PartitionProduceData(index=number, records=records)
        topics.setdefault(name, []).append(data)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )


def produce(topic: str, records: bytes | None, partition: int = 0, **more: Any) -> ProduceRequest:
    """Records for one partition."""
    return produce_batches({TopicPartition(topic, partition): records}, **more)


def produce_to(topics: Mapping[str, Iterable[int]], acks: int = -1, value: bytes = b"value") -> ProduceRequest:
    """One record for each partition."""
    batch = build_batch([Record(offset=0, timestamp=0, key=None, value=value, headers=[])])
    keys = (TopicPartition(name, number) for name, numbers in topics.items() for number in numbers)
    return produce_batches(dict.fromkeys(keys, batch), acks=acks)


def fetch(
    *asked: tuple[TopicPartition, int],
    partition_bytes: int = MOST_BYTES,
    max_bytes: int = MOST_BYTES,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    **more: Any,
) -> FetchRequest:
    """`asked`: partitions, and from which offset."""
    topics = [
        FetchRequest.FetchTopic(
            topic=topic,
            partitions=[
                FetchRequest.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes)
            ],
        )
        for (topic, number), offset in asked
    ]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **more)


def list_offsets(topic: str, partition: int = 0, timestamp: int = -1, isolation_level: int = 0) -> ListOffsetsRequest:
    """By default: the end of the log."""
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=1)
    of_topic = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[of_topic])


def fetch_offsets(group: str, topic: str, *partitions: int, require_stable: bool = False) -> OffsetFetchRequest:
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))
    return OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=require_stable)


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

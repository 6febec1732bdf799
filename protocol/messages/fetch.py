"""Fetch (key 1): consumers and followers read records of partitions from given offsets."""

from __future__ import annotations

from collections.abc import Sized
from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    between,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    since,
    string,
    structure,
    until,
    uuid,
)


@message(api_key=1, kind="request", versions=(0, 18), flexible=12)
class FetchRequest(Message):
    """The partitions to read, the maximum bytes, and how long to wait for `min_bytes`; sessions as in KIP-227."""

    class ReplicaState(Message):
        replica_id: int = int32(default=-1, versions=since(15))  # KIP-903
        replica_epoch: int = int64(default=-1, versions=since(15))  # KIP-903

    class FetchPartition(Message):
        partition: int = int32()
        current_leader_epoch: int = int32(default=-1, versions=since(9))  # KIP-320
        fetch_offset: int = int64()
        last_fetched_epoch: int = int32(default=-1, versions=since(12))
        log_start_offset: int = int64(default=-1, versions=since(5))
        partition_max_bytes: int = int32()
        replica_directory_id: UUID = uuid(versions=since(17), tag=0)  # KIP-853
        high_watermark: int = int64(default=0x7FFFFFFFFFFFFFFF, versions=since(18), tag=1)  # KIP-1166

    class FetchTopic(Message):
        topic: str = string(versions=until(12))
        topic_id: UUID = uuid(versions=since(13))  # KIP-516
        partitions: list[FetchRequest.FetchPartition] = array()

    class ForgottenTopic(Message):
        topic: str = string(versions=between(7, 12))
        topic_id: UUID = uuid(versions=since(13))  # KIP-516
        partitions: list[int] = array(int32, versions=since(7))

    cluster_id: str | None = string(default=None, versions=since(12), nullable=since(12), tag=0)
    replica_id: int = int32(default=-1, versions=until(14))
    replica_state: ReplicaState | None = structure(versions=since(15), tag=1)  # KIP-903
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF, versions=since(3))
    isolation_level: int = int8(versions=since(4))
    session_id: int = int32(versions=since(7))
    session_epoch: int = int32(default=-1, versions=since(7))
    topics: list[FetchTopic] = array()
    forgotten_topics_data: list[ForgottenTopic] = array(versions=since(7))
    rack_id: str = string(versions=since(11))


@message(api_key=1, kind="response", versions=(0, 18), flexible=12)
class FetchResponse(Message):
    """Record batches of each partition, with high watermark, last stable offset and aborted transactions."""

    class EpochEndOffset(Message):
        epoch: int = int32(default=-1, versions=since(12))
        end_offset: int = int64(default=-1, versions=since(12))

    class LeaderIdAndEpoch(Message):
        leader_id: int = int32(default=-1, versions=since(12))
        leader_epoch: int = int32(default=-1, versions=since(12))

    class SnapshotId(Message):
        end_offset: int = int64(default=-1)
        epoch: int = int32(default=-1)

    class AbortedTransaction(Message):
        producer_id: int = int64(versions=since(4))
        first_offset: int = int64(versions=since(4))

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        high_watermark: int = int64()
        last_stable_offset: int = int64(default=-1, versions=since(4))
        log_start_offset: int = int64(default=-1, versions=since(5))
        diverging_epoch: FetchResponse.EpochEndOffset | None = structure(versions=since(12), tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch | None = structure(versions=since(12), tag=1)
        snapshot_id: FetchResponse.SnapshotId | None = structure(versions=since(12), tag=2)
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = array(
            versions=since(4), nullable=since(4)
        )
        preferred_read_replica: int = int32(default=-1, versions=since(11))
        records: Sized | None = records(nullable=ALWAYS)

    class FetchableTopicResponse(Message):
        topic: str = string(versions=until(12))
        topic_id: UUID = uuid(versions=since(13))  # KIP-516
        partitions: list[FetchResponse.PartitionData] = array()

    class NodeEndpoint(Message):
        node_id: int = int32(versions=since(16))  # KIP-951
        host: str = string(versions=since(16))  # KIP-951
        port: int = int32(versions=since(16))  # KIP-951
        rack: str | None = string(default=None, versions=since(16), nullable=since(16))  # KIP-951

    throttle_time_ms: int = int32(versions=since(1))
    error_code: int = int16(versions=since(7))
    session_id: int = int32(versions=since(7))
    responses: list[FetchableTopicResponse] = array()
    node_endpoints: list[NodeEndpoint] = array(versions=since(16), tag=0)  # KIP-951

"""Produce (key 0): appends record batches."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
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


@message(api_key=0, kind="request", versions=(0, 13), flexible=9)
class ProduceRequest(Message):
    """Record batches for partitions; `acks` 0, 1 or -1 (all in-sync replicas), `timeout_ms` for the replicas."""

    class PartitionProduceData(Message):
        index: int = int32()
        records: bytes | None = records(nullable=ALWAYS)

    class TopicProduceData(Message):
        name: str = string(versions=until(12))
        topic_id: UUID = uuid(versions=since(13))  # KIP-516
        partition_data: list[ProduceRequest.PartitionProduceData] = array()

    transactional_id: str | None = string(default=None, versions=since(3), nullable=since(3))
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array()


@message(api_key=0, kind="response", versions=(0, 13), flexible=9)
class ProduceResponse(Message):
    """The offset of each partition's first record, or the error of its append."""

    class BatchIndexAndErrorMessage(Message):
        batch_index: int = int32(versions=since(8))  # KIP-467
        batch_index_error_message: str | None = string(default=None, versions=since(8), nullable=since(8))  # KIP-467

    class LeaderIdAndEpoch(Message):
        leader_id: int = int32(default=-1, versions=since(10))  # KIP-951
        leader_epoch: int = int32(default=-1, versions=since(10))  # KIP-951

    class PartitionProduceResponse(Message):
        index: int = int32()
        error_code: int = int16()
        base_offset: int = int64()
        log_append_time_ms: int = int64(default=-1, versions=since(2))
        log_start_offset: int = int64(default=-1, versions=since(5))
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = array(versions=since(8))  # KIP-467
        error_message: str | None = string(default=None, versions=since(8), nullable=since(8))  # KIP-467
        current_leader: ProduceResponse.LeaderIdAndEpoch | None = structure(versions=since(10), tag=0)  # KIP-951

    class TopicProduceResponse(Message):
        name: str = string(versions=until(12))
        topic_id: UUID = uuid(versions=since(13))  # KIP-516
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = array()

    class NodeEndpoint(Message):
        node_id: int = int32(versions=since(10))  # KIP-951
        host: str = string(versions=since(10))  # KIP-951
        port: int = int32(versions=since(10))  # KIP-951
        rack: str | None = string(default=None, versions=since(10), nullable=since(10))  # KIP-951

    responses: list[TopicProduceResponse] = array()
    throttle_time_ms: int = int32(versions=since(1))
    node_endpoints: list[NodeEndpoint] = array(versions=since(10), tag=0)  # KIP-951

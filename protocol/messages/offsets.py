"""OffsetCommit (key 8), OffsetFetch (key 9) and OffsetDelete (key 47): the offsets of groups."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    between,
    bool_,
    int16,
    int32,
    int64,
    message,
    only,
    since,
    string,
    until,
    uuid,
)


@message(api_key=8, kind="request", versions=(0, 10), flexible=8)
class OffsetCommitRequest(Message):
    """Offsets that a group has consumed, each with a metadata text."""

    class OffsetCommitRequestPartition(Message):
        partition_index: int = int32()
        committed_offset: int = int64()
        committed_leader_epoch: int = int32(default=-1, versions=since(6))
        commit_timestamp: int = int64(default=-1, versions=only(1))
        committed_metadata: str | None = string(nullable=ALWAYS)

    class OffsetCommitRequestTopic(Message):
        name: str = string(versions=until(9))
        topic_id: UUID = uuid(versions=since(10))  # KIP-848
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = array()

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1, versions=since(1))
    member_id: str = string(versions=since(1))
    group_instance_id: str | None = string(default=None, versions=since(7), nullable=since(7))
    retention_time_ms: int = int64(default=-1, versions=between(2, 4))
    topics: list[OffsetCommitRequestTopic] = array()


@message(api_key=8, kind="response", versions=(0, 10), flexible=8)
class OffsetCommitResponse(Message):
    """Whether each partition's offset was stored."""

    class OffsetCommitResponsePartition(Message):
        partition_index: int = int32()
        error_code: int = int16()

    class OffsetCommitResponseTopic(Message):
        name: str = string(versions=until(9))
        topic_id: UUID = uuid(versions=since(10))  # KIP-848
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = array()

    throttle_time_ms: int = int32(versions=since(3))
    topics: list[OffsetCommitResponseTopic] = array()


@message(api_key=9, kind="request", versions=(0, 10), flexible=6)
class OffsetFetchRequest(Message):
    """The committed offsets of one group, or from v8 of several; null topics mean all."""

    class OffsetFetchRequestTopic(Message):
        name: str = string(versions=until(7))
        partition_indexes: list[int] = array(int32, versions=until(7))

    class OffsetFetchRequestTopics(Message):
        name: str = string(versions=between(8, 9))
        topic_id: UUID = uuid(versions=since(10))  # KIP-848
        partition_indexes: list[int] = array(int32, versions=since(8))

    class OffsetFetchRequestGroup(Message):
        group_id: str = string(versions=since(8))
        member_id: str | None = string(default=None, versions=since(9), nullable=since(9))  # KIP-848
        member_epoch: int = int32(default=-1, versions=since(9))  # KIP-848
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = array(versions=since(8), nullable=since(8))

    group_id: str = string(versions=until(7))
    topics: list[OffsetFetchRequestTopic] | None = array(versions=until(7), nullable=between(2, 7))
    groups: list[OffsetFetchRequestGroup] = array(versions=since(8))
    require_stable: bool = bool_(versions=since(7))


@message(api_key=9, kind="response", versions=(0, 10), flexible=6)
class OffsetFetchResponse(Message):
    """The committed offset of each partition, -1 if there is none."""

    class OffsetFetchResponsePartition(Message):
        partition_index: int = int32(versions=until(7))
        committed_offset: int = int64(versions=until(7))
        committed_leader_epoch: int = int32(default=-1, versions=between(5, 7))
        metadata: str | None = string(versions=until(7), nullable=until(7))
        error_code: int = int16(versions=until(7))

    class OffsetFetchResponseTopic(Message):
        name: str = string(versions=until(7))
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = array(versions=until(7))

    class OffsetFetchResponsePartitions(Message):
        partition_index: int = int32(versions=since(8))
        committed_offset: int = int64(versions=since(8))
        committed_leader_epoch: int = int32(default=-1, versions=since(8))
        metadata: str | None = string(versions=since(8), nullable=since(8))
        error_code: int = int16(versions=since(8))

    class OffsetFetchResponseTopics(Message):
        name: str = string(versions=between(8, 9))
        topic_id: UUID = uuid(versions=since(10))  # KIP-848
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = array(versions=since(8))

    class OffsetFetchResponseGroup(Message):
        group_id: str = string(versions=since(8))
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = array(versions=since(8))
        error_code: int = int16(versions=since(8))

    throttle_time_ms: int = int32(versions=since(3))
    topics: list[OffsetFetchResponseTopic] = array(versions=until(7))
    error_code: int = int16(versions=between(2, 7))
    groups: list[OffsetFetchResponseGroup] = array(versions=since(8))


@message(api_key=47, kind="request", versions=(0, 0))
class OffsetDeleteRequest(Message):
    """Deletes committed offsets of a group."""

    class OffsetDeleteRequestPartition(Message):
        partition_index: int = int32()

    class OffsetDeleteRequestTopic(Message):
        name: str = string()
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = array()

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array()


@message(api_key=47, kind="response", versions=(0, 0))
class OffsetDeleteResponse(Message):
    """Whether each partition's offset was deleted."""

    class OffsetDeleteResponsePartition(Message):
        partition_index: int = int32()
        error_code: int = int16()

    class OffsetDeleteResponseTopic(Message):
        name: str = string()
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = array()

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array()

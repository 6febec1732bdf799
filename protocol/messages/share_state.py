"""The requests of share partition leaders to the share coordinator (keys 83 to 87, KIP-932)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import ALWAYS, Message, array, int8, int16, int32, int64, message, since, string, uuid


@message(api_key=83, kind="request", versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest(Message):
    """Partitions that a share group begins to read, and from where."""

    class PartitionData(Message):
        partition: int = int32()
        state_epoch: int = int32()
        start_offset: int = int64()

    class InitializeStateData(Message):
        topic_id: UUID = uuid()
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = array()

    group_id: str = string()
    topics: list[InitializeStateData] = array()


@message(api_key=83, kind="response", versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse(Message):
    """Whether the state of each partition was initialized."""

    class PartitionResult(Message):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    class InitializeStateResult(Message):
        topic_id: UUID = uuid()
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = array()

    results: list[InitializeStateResult] = array()


@message(api_key=84, kind="request", versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest(Message):
    """Partitions whose state a leader needs."""

    class PartitionData(Message):
        partition: int = int32()
        leader_epoch: int = int32()

    class ReadStateData(Message):
        topic_id: UUID = uuid()
        partitions: list[ReadShareGroupStateRequest.PartitionData] = array()

    group_id: str = string()
    topics: list[ReadStateData] = array()


@message(api_key=84, kind="response", versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse(Message):
    """The start offset of each partition, and the records after it that have been delivered."""

    class StateBatch(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    class PartitionResult(Message):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        state_epoch: int = int32()
        start_offset: int = int64()
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = array()

    class ReadStateResult(Message):
        topic_id: UUID = uuid()
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = array()

    results: list[ReadStateResult] = array()


@message(api_key=85, kind="request", versions=(0, 1), flexible=0)
class WriteShareGroupStateRequest(Message):
    """The state of partitions after deliveries and acknowledgements."""

    class StateBatch(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    class PartitionData(Message):
        partition: int = int32()
        state_epoch: int = int32()
        leader_epoch: int = int32()
        start_offset: int = int64()
        delivery_complete_count: int = int32(default=-1, versions=since(1))
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = array()

    class WriteStateData(Message):
        topic_id: UUID = uuid()
        partitions: list[WriteShareGroupStateRequest.PartitionData] = array()

    group_id: str = string()
    topics: list[WriteStateData] = array()


@message(api_key=85, kind="response", versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse(Message):
    """Whether the state of each partition was written."""

    class PartitionResult(Message):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    class WriteStateResult(Message):
        topic_id: UUID = uuid()
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = array()

    results: list[WriteStateResult] = array()


@message(api_key=86, kind="request", versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest(Message):
    """Partitions that a share group reads no more."""

    class PartitionData(Message):
        partition: int = int32()

    class DeleteStateData(Message):
        topic_id: UUID = uuid()
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = array()

    group_id: str = string()
    topics: list[DeleteStateData] = array()


@message(api_key=86, kind="response", versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse(Message):
    """Whether the state of each partition was deleted."""

    class PartitionResult(Message):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    class DeleteStateResult(Message):
        topic_id: UUID = uuid()
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = array()

    results: list[DeleteStateResult] = array()


@message(api_key=87, kind="request", versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest(Message):
    """Partitions whose start offsets are needed."""

    class PartitionData(Message):
        partition: int = int32()
        leader_epoch: int = int32()

    class ReadStateSummaryData(Message):
        topic_id: UUID = uuid()
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = array()

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array()


@message(api_key=87, kind="response", versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse(Message):
    """The start offset of each partition, and how many records after it are done with (-1 unknown)."""

    class PartitionResult(Message):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        state_epoch: int = int32()
        leader_epoch: int = int32()
        start_offset: int = int64()
        delivery_complete_count: int = int32(default=-1, versions=since(1))

    class ReadStateSummaryResult(Message):
        topic_id: UUID = uuid()
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = array()

    results: list[ReadStateSummaryResult] = array()

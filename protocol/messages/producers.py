"""InitProducerId (key 22), DescribeProducers (key 61) and AllocateProducerIds (key 67)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bool_, int16, int32, int64, message, since, string


@message(api_key=22, kind="request", versions=(0, 6), flexible=2)
class InitProducerIdRequest(Message):
    """A producer id and epoch, for an idempotent producer or a transactional id; timeout in ms."""

    transactional_id: str | None = string(nullable=ALWAYS)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, versions=since(3))
    producer_epoch: int = int16(default=-1, versions=since(3))
    enable_2pc: bool = bool_(versions=since(6), name="Enable2Pc")  # KIP-939
    keep_prepared_txn: bool = bool_(versions=since(6))  # KIP-939


@message(api_key=22, kind="response", versions=(0, 6), flexible=2)
class InitProducerIdResponse(Message):
    """The producer id and epoch, -1 on errors."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(default=-1, versions=since(6))  # KIP-939
    ongoing_txn_producer_epoch: int = int16(default=-1, versions=since(6))  # KIP-939


@message(api_key=61, kind="request", versions=(0, 0), flexible=0)
class DescribeProducersRequest(Message):
    """Requests the active producers of partitions."""

    class TopicRequest(Message):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[TopicRequest] = array()


@message(api_key=61, kind="response", versions=(0, 0), flexible=0)
class DescribeProducersResponse(Message):
    """The active producers of each partition with last sequence, timestamp and open transaction."""

    class ProducerState(Message):
        producer_id: int = int64()
        producer_epoch: int = int32()
        last_sequence: int = int32(default=-1)
        last_timestamp: int = int64(default=-1)
        coordinator_epoch: int = int32()
        current_txn_start_offset: int = int64(default=-1)

    class PartitionResponse(Message):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        active_producers: list[DescribeProducersResponse.ProducerState] = array()

    class TopicResponse(Message):
        name: str = string()
        partitions: list[DescribeProducersResponse.PartitionResponse] = array()

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array()


@message(api_key=67, kind="request", versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest(Message):
    """A broker asks the controller for a block of producer ids."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@message(api_key=67, kind="response", versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse(Message):
    """The first id of the block and the number of its ids."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()

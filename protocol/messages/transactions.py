"""Transactions (keys 24-28, 65 and 66)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    until,
    uuid,
)


@message(api_key=24, kind="request", versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Message):
    """Partitions that a transaction will write to; v4 is for brokers, which send several transactions at once."""

    class AddPartitionsToTxnTopic(Message):
        name: str = string()
        partitions: list[int] = array(int32)

    class AddPartitionsToTxnTransaction(Message):
        transactional_id: str = string(versions=since(4))
        producer_id: int = int64(versions=since(4))
        producer_epoch: int = int16(versions=since(4))
        verify_only: bool = bool_(default=False, versions=since(4))
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = array(versions=since(4))

    transactions: list[AddPartitionsToTxnTransaction] = array(versions=since(4))
    v3_and_below_transactional_id: str = string(versions=until(3))
    v3_and_below_producer_id: int = int64(versions=until(3))
    v3_and_below_producer_epoch: int = int16(versions=until(3))
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(versions=until(3))


@message(api_key=24, kind="response", versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse(Message):
    """Whether each partition was added to the transaction."""

    class AddPartitionsToTxnPartitionResult(Message):
        partition_index: int = int32()
        partition_error_code: int = int16()

    class AddPartitionsToTxnTopicResult(Message):
        name: str = string()
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = array()

    class AddPartitionsToTxnResult(Message):
        transactional_id: str = string(versions=since(4))
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = array(versions=since(4))

    throttle_time_ms: int = int32()
    error_code: int = int16(versions=since(4))
    results_by_transaction: list[AddPartitionsToTxnResult] = array(versions=since(4))
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(versions=until(3))


@message(api_key=25, kind="request", versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Message):
    """A group whose offsets a transaction will commit."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(api_key=25, kind="response", versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse(Message):
    """Whether the group was added to the transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


@message(api_key=26, kind="request", versions=(0, 5), flexible=3)
class EndTxnRequest(Message):
    """Commits or aborts a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = bool_()


@message(api_key=26, kind="response", versions=(0, 5), flexible=3)
class EndTxnResponse(Message):
    """Whether the transaction will end as requested; from v5 with the producer id and epoch of the next one."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1, versions=since(5))  # KIP-890
    producer_epoch: int = int16(default=-1, versions=since(5))  # KIP-890


@message(api_key=27, kind="request", versions=(0, 2), flexible=1)
class WriteTxnMarkersRequest(Message):
    """A transaction coordinator makes partition leaders write the markers that end transactions."""

    class WritableTxnMarkerTopic(Message):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    class WritableTxnMarker(Message):
        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = bool_()
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = array()
        coordinator_epoch: int = int32()
        transaction_version: int = int8(versions=since(2))  # KIP-1228

    markers: list[WritableTxnMarker] = array()


@message(api_key=27, kind="response", versions=(0, 2), flexible=1)
class WriteTxnMarkersResponse(Message):
    """Whether each producer's marker was written to each partition."""

    class WritableTxnMarkerPartitionResult(Message):
        partition_index: int = int32()
        error_code: int = int16()

    class WritableTxnMarkerTopicResult(Message):
        name: str = string()
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = array()

    class WritableTxnMarkerResult(Message):
        producer_id: int = int64()
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = array()

    markers: list[WritableTxnMarkerResult] = array()


@message(api_key=28, kind="request", versions=(0, 6), flexible=3)
class TxnOffsetCommitRequest(Message):
    """Offsets of a group, committed with a transaction."""

    class TxnOffsetCommitRequestPartition(Message):
        partition_index: int = int32()
        committed_offset: int = int64()
        committed_leader_epoch: int = int32(default=-1, versions=since(2))
        committed_metadata: str | None = string(nullable=ALWAYS)

    class TxnOffsetCommitRequestTopic(Message):
        name: str = string(versions=until(5))
        topic_id: UUID = uuid(versions=since(6))  # KIP-1319
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = array()

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(default=-1, versions=since(3))
    member_id: str = string(versions=since(3))
    group_instance_id: str | None = string(default=None, versions=since(3), nullable=since(3))
    topics: list[TxnOffsetCommitRequestTopic] = array()


@message(api_key=28, kind="response", versions=(0, 6), flexible=3)
class TxnOffsetCommitResponse(Message):
    """Whether each partition's offset was accepted."""

    class TxnOffsetCommitResponsePartition(Message):
        partition_index: int = int32()
        error_code: int = int16()

    class TxnOffsetCommitResponseTopic(Message):
        name: str = string(versions=until(5))
        topic_id: UUID = uuid(versions=since(6))  # KIP-1319
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = array()

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array()


@message(api_key=65, kind="request", versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Message):
    """The transactional ids to describe."""

    transactional_ids: list[str] = array(string)


@message(api_key=65, kind="response", versions=(0, 0), flexible=0)
class DescribeTransactionsResponse(Message):
    """The state, producer, start in ms since 1970 and partitions of each transactional id."""

    class TopicData(Message):
        topic: str = string()
        partitions: list[int] = array(int32)

    class TransactionState(Message):
        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[DescribeTransactionsResponse.TopicData] = array()

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array()


@message(api_key=66, kind="request", versions=(0, 2), flexible=0)
class ListTransactionsRequest(Message):
    """All transactions of a coordinator, filtered by state, producer id, age in ms and a pattern of the id."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(default=-1, versions=since(1))
    transactional_id_pattern: str | None = string(default=None, versions=since(2), nullable=since(2))  # KIP-1152


@message(api_key=66, kind="response", versions=(0, 2), flexible=0)
class ListTransactionsResponse(Message):
    """The transactional ids with producer and state."""

    class TransactionState(Message):
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array()

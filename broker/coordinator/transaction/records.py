"""Encodes transactions as records of `__transaction_state`, and decodes them.

The key is the transactional id (version 0). Values are written in version 0, as Kafka does; versions 0 and 1 are
decoded. The partitions of an Empty transaction are null. In other states the array may be empty: no partition is added
yet, or all have their markers. A tombstone deletes the id.

Source: Kafka's `TransactionLog`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.coordinator.runtime.record import (
    CoordinatorRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from odradek.broker.coordinator.transaction.transaction import NO_PARTITIONS, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Transit
from odradek.broker.coordinator.transaction.transaction_state import EMPTY, IN_THE_LOG, TransactionState
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.topic_partition import TopicPartition

KEY_VERSION = 0
VALUE_VERSION = 0


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers by topic, both in ascending order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Returns the record that deletes the id."""
    return CoordinatorRecord(encode_key(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION), None)


def transaction_record(transactional_id: str, transit: Transit) -> CoordinatorRecord:
    """Returns the record for the state in `transit`."""
    partitions = None
    if transit.state != EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in partitions_by_topic(transit.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.timeout_ms,
        transaction_status=int(transit.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transit.update_ms,
        transaction_start_timestamp_ms=transit.start_ms,
    )
    key = encode_key(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
    return CoordinatorRecord(key, encode_value(value, VALUE_VERSION))


def read_transaction(record: CoordinatorRecord) -> tuple[str, Transit | None]:
    """Returns (transactional id, its state, or None for a tombstone). Raises MalformedMessage."""
    transactional_id = decode_key(TransactionLogKey, record.key).transactional_id
    if record.value is None:
        return transactional_id, None
    _, value = decode_value(TransactionLogValue, record.value)
    state = value.transaction_status
    if state not in IN_THE_LOG:
        raise MalformedMessage(f"the transactional id {transactional_id!r} has the invalid state {state}")
    partitions = NO_PARTITIONS
    if state != EMPTY:
        partitions = frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        )
    return transactional_id, Transit(
        TransactionState(state),
        value.producer_id,
        NO_PRODUCER_ID,
        value.producer_epoch,
        NO_PRODUCER_EPOCH,
        value.transaction_timeout_ms,
        partitions,
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
    )

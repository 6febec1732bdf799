"""Encodes transactions as records of `__transaction_state`, and decodes them.

The key is the transactional id (version 0). Values have version 1 if the level of transaction.version is at least 1, or
the state has what only that version can hold, and otherwise version 0. The partitions of an Empty transaction are null.
In other states the array may be empty: no partition is added yet, or all have their markers. A tombstone deletes the
id.

The next epoch, a tagged field of version 1, is of two-phase commit: it is neither written nor read.

Source: Kafka's `TransactionLog`; KIP-890.
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
FIRST_WITH_TAGS = 1
"""The first version of values, and of transactions, that stores the previous and next producer id."""


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers by topic, both in ascending order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Returns the record that deletes the id."""
    return CoordinatorRecord(encode_key(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION), None)


def transaction_record(transactional_id: str, transit: Transit, transaction_version: int = 0) -> CoordinatorRecord:
    """Returns the record for the state in `transit`. `transaction_version` is the cluster's."""
    has_tags = transaction_version >= FIRST_WITH_TAGS or transit.client_version or transit.next_producer_id >= 0
    partitions = None
    if transit.state != EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in partitions_by_topic(transit.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        previous_producer_id=transit.previous_producer_id,
        next_producer_id=transit.next_producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.timeout_ms,
        transaction_status=int(transit.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transit.update_ms,
        transaction_start_timestamp_ms=transit.start_ms,
        client_transaction_version=transit.client_version,
    )
    key = encode_key(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
    return CoordinatorRecord(key, encode_value(value, FIRST_WITH_TAGS if has_tags else 0))


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
        value.previous_producer_id,
        value.next_producer_id,
        value.client_transaction_version,
    )

"""Keys and values of `__transaction_state`, after an int16 version."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, int8, int16, int32, int64, message, since, string


@message(kind="data", versions=(0, 0))
class TransactionLogKey(Message):
    """A transactional id."""

    transactional_id: str = string()


@message(kind="data", versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    """The state of a transaction: producer, timeout in ms, status code, partitions, times in ms since 1970.

    From v1 with the ids of transactions version 2, -1 for none, and the version that the client uses.
    """

    class PartitionsSchema(Message):
        topic: str = string()
        partition_ids: list[int] = array(int32)

    producer_id: int = int64()
    previous_producer_id: int = int64(default=-1, versions=since(1), tag=0)  # KIP-890
    next_producer_id: int = int64(default=-1, versions=since(1), tag=1)  # KIP-890
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(default=-1, versions=since(1), tag=3)  # KIP-939
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(nullable=ALWAYS)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(versions=since(1), tag=2)  # KIP-890

"""The interface between a coordinator and its runtime: one shard per partition of the internal topic, and decisions.

A coordinator's function reads a shard, changes no durable state, and returns a `Decision`: the records that describe
the new state. The runtime appends the records, replays them into the shard, and calls `done` once the high watermark
has passed them. Loading after a restart is the same replay. (Decide, then act; Kafka's `CoordinatorShard`,
`CoordinatorResult`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mypy_extensions import mypyc_attr

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class Shard(Protocol):
    """The state of one partition of the internal topic. An unloaded shard is never used again.

    `replay` and `replay_end_transaction` may raise any exception for a record that they cannot decode; the record is
    skipped and logged.
    """

    def replay(
        self, record: CoordinatorRecord, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        """Applies the record at `offset` of the log. A producer id >= 0: it belongs to a transaction that is open."""

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Applies a transaction marker: the producer's pending records take effect or are dropped."""

    def loaded(self) -> None:
        """The whole log has been replayed: starts timers and resumes prepared changes."""

    def unload(self) -> None:
        """Leadership is lost or the broker stops: answers parked requests with NOT_COORDINATOR and cancels timers."""


@mypyc_attr(native_class=False)
class AppendFailed(ProtocolError):
    """The append of a decision's records failed. `code` is the error for the client, `cause` the log's error.
    `is_written`: the records are in this leader's log all the same, and may be replicated later.
    """

    def __init__(self, cause: ErrorCode, message: str | None = None, *, is_written: bool = False) -> None:
        super().__init__(COORDINATORS_CODE.get(cause, cause), message)
        self.cause = cause
        self.is_written = is_written


COORDINATORS_CODE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Maps an error of the append to the error that the coordinator returns to its client. Others are unchanged."""

OnDone = Callable[[ProtocolError | None], object]


def nobody_waits(_error: ProtocolError | None) -> None:
    """The `done` of a decision whose outcome is ignored."""


class Decision:
    """The records to append and the callback to call afterwards. Times in ms.

    `records` are written as one batch. If it is empty, nothing is written: `done` is called when the records that were
    replayed before are replicated, since the decision is made of them, too.
    `done` is called exactly once, possibly before `act` returns: with None once the high watermark has passed the
    batch, otherwise with an AppendFailed.
    `replay`: whether the records are replayed into the shard right after the append, before the high watermark has
    passed them. False if `done` changes the state itself.
    `producer_id` >= 0: the batch belongs to the producer's transaction.
    `acks`: as in a Produce request; None: the runtime's setting applies. 0: too few replicas in sync do not matter.
    `timeout_ms` None: the runtime's timeout applies.
    `base_sequence`: Kafka's offset commits carry 0.
    `base_offset`: the batch's offset in the log; -1 until it is appended.
    """

    __slots__ = (
        "acks",
        "base_offset",
        "base_sequence",
        "done",
        "producer_epoch",
        "producer_id",
        "records",
        "replay",
        "timeout_ms",
    )

    def __init__(
        self,
        records: Sequence[CoordinatorRecord] = (),
        done: OnDone = nobody_waits,
        *,
        replay: bool = True,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        acks: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        self.records = records
        self.done = done
        self.replay = replay
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.base_offset = -1


class Runtime(Protocol):
    """The part of `CoordinatorRuntime` that a coordinator uses."""

    def partition_for(self, key: str) -> int: ...

    def shard_for(self, key: str) -> Shard: ...

    def shards(self) -> Sequence[Shard]: ...

    @property
    def loading(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...


Act = Callable[[Decision], None]
"""Carries out a decision of one shard. `Decision` says when and with what its `done` is called."""

NewShard = Callable[[int, int, Act], Shard]
"""new_shard(partition, leader_epoch, act): creates an empty shard, whose decisions `act` carries out."""

StartRuntime = Callable[[NewShard], Runtime]
"""start_runtime(new_shard): starts a runtime that creates its shards with `new_shard`."""

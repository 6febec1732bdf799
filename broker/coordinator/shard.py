"""What a coordinator is to the runtime: a shard for each partition of its internal topic, and decisions.

A coordinator's function looks at a shard, changes nothing that must survive, and returns a `Decision`: the records
that say what shall be. The runtime appends them, replays them into the shard, and tells `done` when they are safe.
Loading after a restart is the same replay. (Decide, then act; Kafka's `CoordinatorShard`, `CoordinatorResult`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.broker.coordinator.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class Shard(Protocol):
    """The state of one partition of the internal topic. One that is unloaded is never used again.

    `replay` and `replay_end_transaction` raise what they like for a record that they cannot read: it is passed over
    with a line in the log.
    """

    def replay(
        self, record: CoordinatorRecord, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        """A record at `offset` of the log. With a producer id >= 0 it is part of a transaction that is still open."""

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker in this partition: what the producer has pending here is valid now, or void."""

    def loaded(self) -> None:
        """Everything in the log has been replayed: begin timers, go on with what was prepared."""

    def unload(self) -> None:
        """Leadership is lost, or the broker stops: answer who waits with NOT_COORDINATOR, cancel timers."""


class AppendFailed(ProtocolError):
    """Why a decision's records are not safe: `code` as coordinators tell their clients, `cause` as the log said."""

    def __init__(self, cause: ErrorCode, message: str | None = None) -> None:
        super().__init__(COORDINATORS_CODE.get(cause, cause), message)
        self.cause = cause


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
"""What a failed append means to a coordinator's client. Others stay as they are."""

OnDone = Callable[[ProtocolError | None], object]


def nobody_waits(_error: ProtocolError | None) -> None:
    """The `done` of a decision whose outcome nobody waits for."""


class Decision:
    """What shall be. Times in ms.

    `records` become one batch; with none nothing is written and `done` is called at once. `done` is called exactly
    once, perhaps before `act` returns: None when the high watermark has passed the batch, else an AppendFailed.
    `replay`: whether the records are replayed into the shard right after the append, before the high watermark has
    passed them; False where `done` changes the state itself. A `producer_id` >= 0 makes the batch part of its
    transaction. `timeout_ms` None: the runtime's. `base_sequence`: Kafka's commits carry 0. `base_offset` is where the
    batch stands in the log, from the moment it does; -1 before.
    """

    __slots__ = (
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
        timeout_ms: int | None = None,
    ) -> None:
        self.records = records
        self.done = done
        self.replay = replay
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.timeout_ms = timeout_ms
        self.base_offset = -1


class Runtime(Protocol):
    """What a coordinator asks of its `CoordinatorRuntime`."""

    def shard_for(self, key: str) -> Shard: ...

    def shards(self) -> Sequence[Shard]: ...

    @property
    def loading(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    def act(self, shard: Shard, decision: Decision) -> None: ...

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None: ...


StartRuntime = Callable[[Callable[[int, int], Shard]], Runtime]
"""start_runtime(new_shard): starts a runtime whose empty shards come from `new_shard(partition, leader_epoch)`."""

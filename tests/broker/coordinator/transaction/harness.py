"""A transaction coordinator without a broker: a test controls its log, the partitions' logs, time and failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import AppendFailed, Decision, NewShard
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.marker_writing import Marker, OnWritten
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch, Transaction
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import ManualClock

LONGEST_TIMEOUT_MS = 900_000
MINUTE_MS = 60_000
ORDERS = TopicPartition("orders", 0)
RETURNS = TopicPartition("returns", 3)


class WrittenMarker(NamedTuple):
    """A marker in a partition's log."""

    producer: ProducerIdAndEpoch
    committed: bool
    coordinator_epoch: int


class DelayedCall:
    """A delayed call. A cancelled call does not run."""

    def __init__(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.delay_ms = delay_ms
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class TransactionHarness:
    """One partition of `__transaction_state` and the partitions `existing`, all led by broker 1.

    `log` and `markers` survive a crash. Appends and markers take effect at once, unless `appends_held` or
    `markers_held` is set: then they wait in `appends` and `sent`. `append_failure` fails the appends, which are
    in the log nevertheless with `written_though_failed`. `marker_failures` fails the markers by partition.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log: list[CoordinatorRecord] = []
        self.markers: dict[TopicPartition, list[WrittenMarker]] = {}
        self.marker_versions: list[int] = []
        """The version of transactions of each marker, in their order."""
        self.existing = {ORDERS, RETURNS}
        self.leaders: dict[TopicPartition, int] = {}
        self.appends_held = self.markers_held = False
        self.appends: list[Decision] = []
        self.sent: list[tuple[TopicPartition, Marker, OnWritten]] = []
        self.append_failure: ErrorCode | None = None
        self.written_though_failed = False
        self.marker_failures: dict[TopicPartition, ErrorCode] = {}
        self.put_off: list[DelayedCall] = []
        self.next_producer_id = 1000
        self.producer_id_failure: ProtocolError | None = None
        self.coordinator_epoch = -1
        self.loading = self.is_stopping = False
        self.transaction_version = 0
        """The finalized level."""
        self.producer_ids_held = False
        self.wanted_ids: list[Callable[[int | ProtocolError], None]] = []
        self._new_shard: NewShard | None = None
        self.on_step: Callable[[str], None] = lambda step: None
        """Called after each durable step: `append` or `marker`."""
        self.start()

    # The broker's life

    def start(self) -> None:
        """Starts a coordinator, which loads the log."""
        self.coordinator_epoch += 1
        self.coordinator = TransactionCoordinator(
            clock=self.clock,
            longest_timeout_ms=lambda: LONGEST_TIMEOUT_MS,
            new_producer_id=self._new_producer_id,
            leader_of=lambda key: self.leaders.get(key, 1) if key in self.existing else None,
            writer_to=lambda broker_id: self if broker_id == 1 else None,
            own_logs=self,
            later=self._later,
            soon=lambda call: call(),
            transaction_version=lambda: self.transaction_version,
            start_runtime=self._start_runtime,
        )
        assert self._new_shard is not None
        shard = self._new_shard(0, self.coordinator_epoch, lambda decision: self.act(shard, decision))
        self.shard = cast(TransactionShard, shard)
        for offset, record in enumerate(list(self.log)):
            self.shard.replay(record, offset=offset, timestamp_ms=0, producer_id=-1, producer_epoch=-1)
        self.shard.loaded()

    def _start_runtime(self, new_shard: NewShard) -> Any:
        self._new_shard = new_shard
        return self

    def crash(self) -> None:
        """kill -9: held appends and markers are lost, and no request is answered."""
        self.shard.unload()
        self.appends.clear()
        self.sent.clear()
        self.put_off.clear()

    def restart(self) -> None:
        self.crash()
        self.start()

    def lose_leadership(self) -> None:
        """Unloads the shard, then completes the waiting appends."""
        self.shard.unload()
        waiting, self.appends = self.appends, []
        for decision in waiting:
            decision.done(AppendFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # The coordinator's dependencies

    def shard_for(self, key: str) -> TransactionShard:
        if self.is_stopping:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self.shard.is_current:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        return self.shard

    def shards(self) -> list[Any]:
        return [self.shard] if self.shard.is_current else []

    def act(self, shard: Any, decision: Decision) -> None:
        if shard is not self.shard or not shard.is_current:
            decision.done(AppendFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif self.appends_held:
            self.appends.append(decision)
        else:
            self._append(decision)

    def _append(self, decision: Decision) -> None:
        failure = self.append_failure
        if failure is None or self.written_though_failed:
            self.log += decision.records
            self.on_step("append")
        decision.done(None if failure is None else AppendFailed(failure))

    def release_appends(self) -> None:
        waiting, self.appends = self.appends, []
        for decision in waiting:
            self._append(decision)

    def write(self, marker: Marker, on_written: OnWritten) -> None:
        for key in marker.partitions:
            if self.markers_held:
                self.sent.append((key, marker, on_written))
            else:
                self._mark(key, marker, on_written)

    def _mark(self, key: TopicPartition, marker: Marker, on_written: OnWritten) -> None:
        failure = self.marker_failures.get(key, ErrorCode.NONE)
        if failure is ErrorCode.NONE:
            producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
            written = WrittenMarker(producer, marker.committed, marker.coordinator_epoch)
            self.marker_versions.append(marker.transaction_version)
            self.markers.setdefault(key, []).append(written)
            self.on_step("marker")
        on_written(key, failure)

    def release_markers(self) -> None:
        waiting, self.sent = self.sent, []
        for key, marker, on_written in waiting:
            self._mark(key, marker, on_written)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> DelayedCall:
        put = DelayedCall(delay_ms, call)
        self.put_off.append(put)
        return put

    def run_delayed_calls(self) -> None:
        """Runs the delayed calls now."""
        due, self.put_off = self.put_off, []
        for put in due:
            if put.call is not None:
                put.call()

    def _new_producer_id(self, use: Callable[[int | ProtocolError], None]) -> None:
        if self.producer_id_failure is not None:
            use(self.producer_id_failure)
            return
        if self.producer_ids_held:
            self.wanted_ids.append(use)
            return
        self.next_producer_id += 1
        use(self.next_producer_id)

    def release_producer_ids(self) -> None:
        self.producer_ids_held = False
        waiting, self.wanted_ids = self.wanted_ids, []
        for use in waiting:
            self._new_producer_id(use)

    # Requests and their responses

    def init(self, name: str = "t", expected: ProducerIdAndEpoch | None = None, timeout_ms: int = MINUTE_MS) -> Any:
        """Returns the producer, an error code, or None while there is no response."""
        answers: list[Any] = []
        self.coordinator.init_producer_id(name, timeout_ms, expected, answers.append)
        return _only(answers)

    def add(
        self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, name: str = "t", client_version: int = 0
    ) -> ErrorCode | None:
        answers: list[Any] = []
        added = frozenset(partitions or (ORDERS,))
        self.coordinator.add_partitions(name, producer, added, answers.append, client_version)
        return _code(answers)

    def end(self, producer: ProducerIdAndEpoch, committed: bool = True, name: str = "t") -> ErrorCode | None:
        answers: list[Any] = []
        self.coordinator.end(name, producer, committed, answers.append)
        return _code([None if isinstance(answer, ProducerIdAndEpoch) else answer for answer in answers])

    def end_epoch(self, producer: ProducerIdAndEpoch, committed: bool = True, name: str = "t") -> Any:
        """EndTxn of version 2. Returns the next producer, an error code, or None while there is no response."""
        answers: list[Any] = []
        self.coordinator.end(name, producer, committed, answers.append, client_version=2)
        return _only(answers)

    def verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition = ORDERS, name: str = "t") -> ErrorCode:
        return self.coordinator.is_open_transaction(name, *producer, partition)

    def transaction(self, name: str = "t") -> Transaction:
        return self.shard.transactions[name]

    def state(self, name: str = "t") -> str:
        return self.transaction(name).state.label


NO_ANSWER = object()


def _only(answers: list[Any]) -> Any:
    assert len(answers) <= 1, f"answered more than once: {answers}"
    if not answers:
        return None
    return answers[0].code if isinstance(answers[0], ProtocolError) else answers[0]


def _code(answers: list[Any]) -> ErrorCode | None:
    assert len(answers) <= 1, f"answered more than once: {answers}"
    if not answers:
        return None
    return ErrorCode.NONE if answers[0] is None else answers[0].code

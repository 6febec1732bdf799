"""Decides what a producer sends next, and what an answer means. It knows neither network nor time.

The rules are those of Kafka's producer:

(A) A partition's batches are sent in order, with at most `max_in_flight` of them unanswered. An idempotent producer
    gives each a sequence number at its first attempt, and keeps it.
(B) A batch is sent again only when no other of its partition is in flight, and later ones wait for it.
(C) OUT_OF_ORDER_SEQUENCE_NUMBER means "again" if a batch before it has no answer yet, else that the broker does not
    know the producer's state.
(D) If an idempotent batch ends without a confirmation, its sequence numbers leave a gap. The producer then sends
    nothing until all answers are there, and goes on with the next epoch and new numbers (KIP-360). Batches that were
    attempted in the old epoch end, too: sent again in the new one, they might be there twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.clock import START_OF_TIME_MS
from tests.simulation.history import Outcome, Send

RECORD_BYTES = 100
NO_SEQUENCE = -1
NO_EFFECT = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.MESSAGE_TOO_LARGE,
    }
)
"""Codes that a leader returns only before it appends. Others may come after the append."""


@dataclass(eq=False)
class Batch:
    """Some records for one partition. `may_be_there`: an attempt may have been appended. `content`: its bytes, from the
    first attempt on: no later one has another epoch (D)."""

    send: Send
    deadline_us: int
    sequence: int = NO_SEQUENCE
    may_be_there: bool = False
    attempts: int = 0
    not_before_us: int = 0
    content: bytes = b""

    @property
    def partition(self) -> TopicPartition:
        """Where it goes."""
        return self.send.partition


@dataclass(eq=False)
class _Queue:
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    next_sequence: int = 0


@dataclass(eq=False)
class Ended:
    """A batch has its outcome."""

    batch: Batch
    outcome: Outcome
    error: str = ""


class ProducerState:
    """`producer_id` is -1 without idempotence, or until `identify`."""

    def __init__(
        self,
        *,
        is_idempotent: bool,
        max_in_flight: int,
        is_transactional: bool = False,
        key_of: Callable[[str], bytes | None] = lambda text: None,
        compression: int = 0,
    ) -> None:
        """`key_of` returns the key of a record with this text. `compression`: the codec of the batches."""
        self.is_idempotent = is_idempotent
        self.is_transactional = is_transactional
        self.producer_id = -1
        self.epoch = -1
        self.must_renew = False
        """Case (D)."""
        self._max_in_flight = max_in_flight
        self._key_of = key_of
        self._compression = compression
        self._queues: dict[TopicPartition, _Queue] = {}

    @property
    def is_ready(self) -> bool:
        """Whether batches may be sent."""
        return not self.must_renew and (not self.is_idempotent or self.producer_id >= 0)

    @property
    def in_flight(self) -> int:
        """How many batches have no answer."""
        return sum(len(queue.in_flight) for queue in self._queues.values())

    @property
    def unfinished(self) -> int:
        """How many batches have no outcome."""
        return self.in_flight + sum(len(queue.waiting) for queue in self._queues.values())

    def identify(self, producer_id: int, epoch: int) -> list[Ended]:
        """Starts with a new id or epoch. Returns the batches that end with the old one."""
        self.producer_id, self.epoch = producer_id, epoch
        self.must_renew = False
        ended = []
        for queue in self._queues.values():
            queue.next_sequence = 0
            for batch in [batch for batch in queue.waiting if batch.sequence != NO_SEQUENCE]:
                queue.waiting.remove(batch)
                ended.append(_given_up(batch, "the producer went on with a new epoch"))
        return ended

    def add(self, batch: Batch) -> None:
        """Queues a batch."""
        self._queue(batch.partition).waiting.append(batch)

    def sendable(self, now_us: int) -> Iterator[TopicPartition]:
        """The partitions whose next batch may be sent now."""
        if self.is_ready:
            for partition, queue in self._queues.items():
                if self._may_send(queue, now_us):
                    yield partition

    def _may_send(self, queue: _Queue, now_us: int) -> bool:
        if not queue.waiting or len(queue.in_flight) >= self._max_in_flight:
            return False
        first = queue.waiting[0]
        if first.not_before_us > now_us:
            return False
        return first.attempts == 0 or not queue.in_flight  # (B)

    def take(self, partition: TopicPartition) -> tuple[Batch, bytes]:
        """Takes the partition's next batch, and returns its bytes to send."""
        queue = self._queues[partition]
        batch = queue.waiting.popleft()
        queue.in_flight.append(batch)
        batch.attempts += 1
        batch.send.attempts = batch.attempts
        if self.is_idempotent and batch.sequence == NO_SEQUENCE:
            batch.sequence = queue.next_sequence
            queue.next_sequence += len(batch.send.records)
        batch.content = batch.content or self._encoded(batch)
        return batch, batch.content

    def _encoded(self, batch: Batch) -> bytes:
        sent_ms = START_OF_TIME_MS + batch.send.invoked_us // 1000  # older producers would expire
        records = [
            Record(
                offset=number,
                timestamp=sent_ms - number * 7 % 5,  # the times of a batch are not in order
                key=self._key_of(text),
                value=f"{text} ".encode().ljust(RECORD_BYTES),
            )
            for number, text in enumerate(batch.send.records)
        ]
        return build_batch(
            records,
            compression=self._compression,
            producer_id=self.producer_id if self.is_idempotent else -1,
            producer_epoch=self.epoch if self.is_idempotent else -1,
            base_sequence=batch.sequence,
            is_transactional=self.is_transactional,
        )

    def not_sent(self, batch: Batch) -> None:
        """The request did not leave: nothing has happened, but that the batch has its sequence number."""
        self._requeue(batch)

    def unanswered(self, batch: Batch) -> None:
        """No answer came."""
        batch.may_be_there = True
        self._requeue(batch)

    def answered(self, batch: Batch, code: ErrorCode, base_offset: int, broker_id: int) -> Ended | None:
        """Returns the outcome, or None if the batch is sent again."""
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._queue(batch.partition).in_flight.remove(batch)
            batch.send.base_offset = base_offset
            batch.send.broker_id = broker_id
            return Ended(batch, Outcome.OK)
        if code not in NO_EFFECT:
            batch.may_be_there = True
        if self._is_retriable(batch, code):
            self._requeue(batch)
            return None
        return self._end(batch, code.name)

    def _is_retriable(self, batch: Batch, code: ErrorCode) -> bool:
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:  # (C)
            queue = self._queue(batch.partition)
            return any(0 <= other.sequence < batch.sequence for other in (*queue.in_flight, *queue.waiting))
        return code.retriable

    def abandon(self) -> list[Ended]:
        """Ends all batches that are not in flight."""
        return [self._end(batch, "abandoned") for queue in self._queues.values() for batch in list(queue.waiting)]

    def expire(self, now_us: int) -> list[Ended]:
        """Ends the batches that are not in flight and whose time is up."""
        late = [
            batch for queue in self._queues.values() for batch in list(queue.waiting) if batch.deadline_us <= now_us
        ]
        return [self._end(batch, "out of time") for batch in late]

    def _end(self, batch: Batch, error: str) -> Ended:
        queue = self._queue(batch.partition)
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        else:
            queue.waiting.remove(batch)
        if self.is_idempotent and batch.sequence != NO_SEQUENCE:
            self.must_renew = True
        return _given_up(batch, error)

    def _requeue(self, batch: Batch) -> None:
        """Puts the batch back to its place."""
        queue = self._queue(batch.partition)
        queue.in_flight.remove(batch)
        place = 0
        if self.is_idempotent:
            while place < len(queue.waiting) and 0 <= queue.waiting[place].sequence < batch.sequence:
                place += 1
        queue.waiting.insert(place, batch)

    def _queue(self, partition: TopicPartition) -> _Queue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
        return queue


def _given_up(batch: Batch, error: str) -> Ended:
    return Ended(batch, Outcome.UNKNOWN if batch.may_be_there else Outcome.FAILED, error)

"""What clients asked for and what they were told: the operations that the checker judges.

Every operation has a process (the client), the virtual times of its invocation and its end, and an outcome:

    OK        the cluster confirmed it
    FAILED    the cluster refused it, and it has had no effect
    UNKNOWN   no answer, or one after an unanswered attempt: it may or may not have had its effect
    PENDING   it has not ended

A record's text names its producer and its number there, `producer-2:17`, so that each occurs once in a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from odradek.protocol.topic_partition import TopicPartition


class Outcome(Enum):
    """See the head of this file."""

    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """`error`: why it is not OK. Times in virtual microseconds; -1: not ended."""

    process: str
    invoked_us: int = -1
    ended_us: int = -1
    outcome: Outcome = Outcome.PENDING
    error: str = ""

    def describe(self) -> str:
        """What was asked and answered, in a few words."""
        raise NotImplementedError

    def __str__(self) -> str:
        end = f"{self.ended_us / 1e6:.6f}" if self.ended_us >= 0 else "       ..."
        told = f" ({self.error})" if self.error else ""
        return f"{self.invoked_us / 1e6:10.6f} {end:>10} {self.process}: {self.describe()}: {self.outcome.value}{told}"


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction(Operation):
    """A transaction from its first operation to the answer to EndTxn. `commits`: what the client asked for at its end.

    An aborted transaction is OK when the abort was confirmed. FAILED: the cluster ended it before the client could."""

    transactional_id: str
    number: int
    commits: bool = True
    end_asked_us: int = -1
    """When EndTxn was sent for the first time."""
    producer_id: int = -1
    producer_epoch: int = -1
    decided_epoch: int = -1
    """The epoch of the decision, if it is not the producer's."""

    def describe(self) -> str:
        """See Operation."""
        return f"{'commit' if self.commits else 'abort'} {self.transactional_id} #{self.number}"


@dataclass(slots=True, kw_only=True, eq=False)
class Initialised(Operation):
    """A transactional producer asks for its producer id and epoch, which ends what was done under its id before."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1

    def describe(self) -> str:
        """See Operation."""
        return f"initialise {self.transactional_id}: producer {self.producer_id} in epoch {self.producer_epoch}"


@dataclass(slots=True, kw_only=True, eq=False)
class Send(Operation):
    """One batch. A producer's sends to a partition are in its history in the order in which it made them."""

    partition: TopicPartition
    records: tuple[str, ...]
    acks: int = -1
    is_idempotent: bool = True
    transaction: Transaction | None = None
    base_offset: int = -1
    """The offset of the first record, if the leader named it."""
    broker_id: int = -1
    """The broker that confirmed it."""
    attempts: int = 1
    """How often it was sent. A leader also confirms what an earlier attempt has brought to an earlier leader."""

    def describe(self) -> str:
        """See Operation."""
        where = f" at {self.base_offset} by broker {self.broker_id}" if self.base_offset >= 0 else ""
        within = f" in {self.transaction.transactional_id} #{self.transaction.number}" if self.transaction else ""
        return f"send {_span(self.records)} to {self.partition} acks={self.acks}{within}{where}"


class ReadRecord(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    epoch: int
    """The leader epoch of its batch."""
    text: str


@dataclass(slots=True, kw_only=True, eq=False)
class Read(Operation):
    """What one fetch returned for one partition, without error."""

    partition: TopicPartition
    position: int
    next_position: int
    """Where the consumer continues: behind the last batch, which may be a marker."""
    is_committed: bool = False
    """isolation.level=read_committed."""
    leader_epoch: int = -1
    """The epoch that the consumer asked for and the broker accepted."""
    broker_id: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[ReadRecord] = ()

    def describe(self) -> str:
        """See Operation."""
        got = _span([record.text for record in self.records])
        return (
            f"read {self.partition} from {self.position} to {self.next_position} in epoch {self.leader_epoch} "
            f"of broker {self.broker_id}, high watermark {self.high_watermark}: {got}"
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Truncated(Operation):
    """A consumer learned that the log ends before its position, by OffsetForLeaderEpoch or OFFSET_OUT_OF_RANGE."""

    partition: TopicPartition
    position: int
    end_offset: int

    def describe(self) -> str:
        """See Operation."""
        return f"found {self.partition} truncated to {self.end_offset} at position {self.position}"


@dataclass(slots=True, kw_only=True, eq=False)
class Wrong(Operation):
    """Something that must not be, judged at the moment when it happens."""


@dataclass(slots=True, kw_only=True, eq=False)
class Broken(Wrong):
    """Something in a broker was seen in a state that it promises never to have (its method `check`)."""

    what: str
    reason: str

    def describe(self) -> str:
        """See Operation."""
        return f"has {self.what} with a broken invariant: {self.reason}"


@dataclass(slots=True, kw_only=True, eq=False)
class JoinedBehind(Wrong):
    """The store got a replica into the in-sync replicas whose log ended below its leader's high watermark."""

    partition: TopicPartition
    broker_id: int
    log_end_offset: int
    high_watermark: int

    def describe(self) -> str:
        """See Operation."""
        where = f"which ends at {self.log_end_offset}, below the high watermark {self.high_watermark}"
        return f"the replica of {self.partition} on broker {self.broker_id}, {where}, joins the in-sync replicas"


@dataclass(slots=True, kw_only=True, eq=False)
class ServedEarly(Wrong):
    """A coordinator of transactions was seen to serve before all was committed that earlier leaders had appended."""

    partition: TopicPartition
    high_watermark: int
    start_offset: int
    """Where its own records begin."""

    def describe(self) -> str:
        """See Operation."""
        where = f"committed to {self.high_watermark}, of {self.start_offset} that earlier leaders have appended"
        return f"serves {self.partition}, which is {where}"


@dataclass(slots=True, kw_only=True, eq=False)
class Commit(Operation):
    """A group's offsets, by a member or within a transaction."""

    group: str
    offsets: Mapping[TopicPartition, int]
    transaction: Transaction | None = None
    generation: int = -1
    instance_id: str | None = None
    """That of a static member."""

    def describe(self) -> str:
        """See Operation."""
        within = f" in generation {self.generation}" if self.generation >= 0 else ""
        return f"commit {_offsets(self.offsets)} of {self.group}{within}"


@dataclass(slots=True, kw_only=True, eq=False)
class Synced(Operation):
    """A member has got its share of a generation. The generation is in the coordinator's log then."""

    group: str
    generation: int
    instance_id: str | None = None
    """That of a static member."""

    def describe(self) -> str:
        """See Operation."""
        return f"takes part in generation {self.generation} of {self.group}"


@dataclass(slots=True, kw_only=True, eq=False)
class Committed(Operation):
    """The group's offsets as the coordinator reported them; -1: none."""

    group: str
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def describe(self) -> str:
        """See Operation."""
        return f"ask for offsets of {self.group}: {_offsets(self.offsets)}"


@dataclass(slots=True, kw_only=True, eq=False)
class Started(Operation):
    """A broker's process has started: it knows what its disk has kept."""

    broker_id: int

    def describe(self) -> str:
        """See Operation."""
        return "starts"


@dataclass(slots=True, kw_only=True, eq=False)
class Registered(Operation):
    """A broker's process has registered in the metadata store. Not `is_there`: the process or the registration has
    ended; the next process of the broker may have to wait before it can register."""

    broker_id: int
    is_there: bool

    def describe(self) -> str:
        """See Operation."""
        return f"broker {self.broker_id} {'registers' if self.is_there else 'is registered no longer'}"


@dataclass(slots=True, kw_only=True, eq=False)
class Elected(Operation):
    """A broker has become the controller."""

    broker_id: int

    def describe(self) -> str:
        """See Operation."""
        return f"broker {self.broker_id} becomes the controller"


class Kind(Enum):
    """What is done to a topic."""

    CREATE = "create"
    EXTEND = "extend"
    DELETE = "delete"


@dataclass(slots=True, kw_only=True, eq=False)
class TopicChange(Operation):
    """`partitions`: how many the topic is to have, 0 if it is deleted."""

    kind: Kind
    topic: str
    partitions: int = 0

    def describe(self) -> str:
        """See Operation."""
        size = f" with {self.partitions} partitions" if self.partitions else ""
        return f"{self.kind.value} topic {self.topic}{size}"


@dataclass(slots=True, kw_only=True, eq=False)
class Reassignment(Operation):
    """A partition is to have these replicas; None: those that it had before the reassignment under way."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None
    seen_to_end_us: int = -1
    """When the controller said that no reassignment of the partition was under way any more."""

    def describe(self) -> str:
        """See Operation."""
        if self.replicas is None:
            return f"cancel the reassignment of {self.partition}"
        return f"reassign {self.partition} to {list(self.replicas)}"


@dataclass(slots=True, kw_only=True, eq=False)
class Request(Operation):
    """Anything else: an administrator's change, or a request whose answer alone counts."""

    what: str

    def describe(self) -> str:
        """See Operation."""
        return self.what


O = TypeVar("O", bound=Operation)  # noqa: E741


class History:
    """All operations in the order of their invocations. `now_us` is the virtual time; `on_change` hears of each
    beginning and end: the trace."""

    def __init__(
        self, now_us: Callable[[], int] = lambda: 0, on_change: Callable[[Operation], object] = lambda _: None
    ) -> None:
        self.operations: list[Operation] = []
        self._now_us = now_us
        self._on_change = on_change

    def begin(self, operation: O) -> O:
        """Adds an operation that a client begins now."""
        operation.invoked_us = self._now_us()
        self.operations.append(operation)
        self._on_change(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome, error: str = "") -> None:
        """Ends an operation. Only the first end counts."""
        if operation.outcome is Outcome.PENDING:
            operation.outcome = outcome
            operation.error = error
            operation.ended_us = self._now_us()
            self._on_change(operation)

    def note(self, operation: O) -> O:
        """Adds an operation that has just been answered."""
        self.begin(operation)
        self.end(operation, Outcome.OK)
        return operation

    def of(self, kind: type[O]) -> Iterator[O]:
        """The operations of one kind."""
        return (each for each in self.operations if isinstance(each, kind))

    def around(self, operations: Iterable[Operation], margin_us: int = 500_000) -> list[Operation]:
        """The operations that overlap one of these, or that begin or end within the margin."""
        spans = [(each.invoked_us - margin_us, max(each.ended_us, each.invoked_us) + margin_us) for each in operations]
        return [
            each
            for each in self.operations
            if any(begin <= max(each.ended_us, each.invoked_us) and each.invoked_us <= end for begin, end in spans)
        ]


def _span(records: Sequence[str]) -> str:
    if len(records) <= 2:
        return ", ".join(records) or "nothing"
    return f"{records[0]} .. {records[-1]} ({len(records)})"


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{partition}={offset}" for partition, offset in offsets.items()) or "nothing"

"""What was seen of producers, transactions and groups, beyond what clients ask for in the ordinary way."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import Operation, Wrong


@dataclass(slots=True, kw_only=True, eq=False)
class LateWrite(Operation):
    """A transactional producer does what its transaction does not allow: it writes to a partition that was not added,
    after the end of the transaction, or after the coordinator has aborted it. The cluster must refuse. `text` names the
    record that it writes, if any."""

    transactional_id: str
    what: str
    partition: TopicPartition | None = None
    text: str = ""

    def describe(self) -> str:
        """See Operation."""
        where = f" {self.text} to {self.partition}" if self.partition is not None else ""
        return f"{self.what}{where} under {self.transactional_id}"


@dataclass(slots=True, kw_only=True, eq=False)
class Identified(Operation):
    """A producer without a transactional id was given a producer id."""

    producer_id: int = -1

    def describe(self) -> str:
        """See Operation."""
        return f"is given producer id {self.producer_id}"


@dataclass(slots=True, kw_only=True, eq=False)
class Stray(Operation):
    """A request to a group for an unknown member, or in a generation that does not exist."""

    group: str
    what: str

    def describe(self) -> str:
        """See Operation."""
        return f"{self.what} of {self.group}"


@dataclass(slots=True, kw_only=True, eq=False)
class BriefCommit(Operation):
    """An offset that may expire after a time."""

    group: str
    partition: TopicPartition
    offset: int
    retention_us: int

    def describe(self) -> str:
        """See Operation."""
        return f"commit {self.partition}={self.offset} of {self.group} for {self.retention_us / 1e6} s"


@dataclass(slots=True, kw_only=True, eq=False)
class BriefAnswer(Operation):
    """What the coordinator says of an offset that may expire; -1: there is none. `writer`: the coordinator, if it can
    write at this moment, or None."""

    group: str
    partition: TopicPartition
    offset: int = -1
    writer: object = None

    def describe(self) -> str:
        """See Operation."""
        return f"ask for {self.partition} of {self.group}: {self.offset}"


@dataclass(slots=True, kw_only=True, eq=False)
class Logged(Operation):
    """A committed record of a transactional id in the log of its coordinator. `state` None: the id is deleted.
    `skips`: the log no longer had the record before it, of whatever id, when it was looked at."""

    partition: TopicPartition
    offset: int
    transactional_id: str
    state: TransactionState | None
    producer_id: int = -1
    producer_epoch: int = -1
    client_version: int = 0
    """The version of transactions of the request that led to it, or of the cluster."""
    skips: bool = False

    def describe(self) -> str:
        """See Operation."""
        state = "deleted" if self.state is None else self.state.label
        who = f"producer {self.producer_id} in epoch {self.producer_epoch}"
        return f"{self.transactional_id} is {state} with {who}, at {self.offset} of {self.partition}"


@dataclass(slots=True, kw_only=True, eq=False)
class Differs(Wrong):
    """A coordinator has in memory what its log does not say. `was_loaded`: right after it was loaded."""

    partition: TopicPartition
    what: str
    in_memory: str
    in_log: str
    was_loaded: bool

    def describe(self) -> str:
        """See Operation."""
        when = "has loaded" if self.was_loaded else "has"
        return f"{when} {self.what} in {self.partition} as {self.in_memory}, but the log says {self.in_log}"


@dataclass(slots=True, kw_only=True, eq=False)
class Unstable(Wrong):
    """A replica in sync has a last stable offset above the first offset of a transaction that is open in its log."""

    partition: TopicPartition
    last_stable_offset: int
    first_open: int

    def describe(self) -> str:
        """See Operation."""
        where = f"below its last stable offset {self.last_stable_offset}"
        return f"has a transaction of {self.partition} that is open from {self.first_open} on, {where}"

"""What a broker has acknowledged, and must therefore know after kill -9.

A request in flight at the kill may have been applied or not. Either state is allowed; the state that the first check
sees must then persist.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.groups import HeartbeatRequest
from odradek.protocol.messages.transactions import DescribeTransactionsRequest
from tests.wire.blocking_client import Client
from tests.wire.coordinators import GIVE_UP_S, committed, described, end_offset, until_loaded

Members = frozenset[tuple[str, bytes]]
NOBODY: Members = frozenset()
"""Member ids and their assignments."""


class Promise(Protocol):
    def check(self, connection: Client) -> None:
        """Fails if the broker does not keep the promise. The state that it sees is promised from then on."""


@dataclass(slots=True)
class GroupPromise:
    """A group's generation and members; an empty group has none."""

    group: str
    allowed: dict[Members, int]

    def check(self, connection: Client) -> None:
        seen = described(connection, self.group)
        members = frozenset((member.member_id, member.member_assignment) for member in seen.members)
        assert members in self.allowed, f"{self.group}: {seen.group_state} {members}, not one of {self.allowed}"
        generation = self.allowed[members]
        assert seen.group_state in (("Stable",) if members else ("Empty", "Dead")), seen
        for member_id, _ in members:
            heartbeat = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=member_id)
            assert connection.ask(heartbeat).error_code == ErrorCode.NONE
        self.allowed = {members: generation}


@dataclass(slots=True)
class OffsetPromise:
    """A group's committed offset; -1: none."""

    group: str
    topic: str
    partition: int
    allowed: set[int]

    def check(self, connection: Client) -> None:
        offset = committed(connection, self.group, self.topic, self.partition)
        assert offset in self.allowed, f"{self.group}: {offset}, not one of {self.allowed}"
        self.allowed = {offset}


@dataclass(slots=True)
class Transaction:
    """The only transaction of a transactional id: its partition, and its known state."""

    name: str
    topic: str
    partition: int
    producer: tuple[int, int] = (-1, -1)
    states: set[str] = field(default_factory=lambda: {"Empty"})
    epochs: set[int] = field(default_factory=lambda: {0})
    partitions: set[frozenset[tuple[str, int]]] = field(default_factory=lambda: {frozenset()})
    """Of an open transaction."""
    offset: tuple[str, int] | None = None
    """The group and the offset that the transaction commits for partition 0 of its topic."""
    first_offset: int = -1
    """The first offset of its records; -1: none."""
    records_may_be_missing: bool = False
    """The records were in flight when the broker was killed."""
    has_the_log: bool = True
    """No later transaction writes to its partition."""

    def check(self, connection: Client) -> None:
        seen = self._settled(connection)
        assert seen.transaction_state in self.states, f"{self.name}: {seen}, not one of {self.states}"
        assert seen.producer_id == self.producer[0]
        assert seen.producer_epoch in self.epochs, f"{self.name}: {seen}, not one of {self.epochs}"
        if seen.transaction_state == "Ongoing":
            added = frozenset((topic.topic, partition) for topic in seen.topics for partition in topic.partitions)
            assert added in self.partitions, f"{self.name}: {added}, not one of {self.partitions}"
            self.partitions = {added}
        if self.has_the_log:
            self._check_log(connection, seen.transaction_state)
        self._check_offset(connection, seen.transaction_state)
        self.records_may_be_missing = False
        self.states, self.epochs = {seen.transaction_state}, {seen.producer_epoch}

    def _settled(self, connection: Client) -> Any:
        """The state once nothing is pending: the broker itself completes prepared transactions."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        give_up = time.monotonic() + GIVE_UP_S
        while True:
            answer = until_loaded(connection, request, "transaction_states.error_code").transaction_states[0]
            assert answer.error_code == ErrorCode.NONE, f"{self.name}: {ErrorCode.of(answer.error_code).name}"
            if not answer.transaction_state.startswith("Prepare"):
                return answer
            assert time.monotonic() < give_up, f"{self.name} stays {answer.transaction_state}"
            time.sleep(0.01)

    def _check_log(self, connection: Client, state: str) -> None:
        stable, end = (end_offset(connection, self.topic, self.partition, isolation) for isolation in (1, 0))
        if state == "Ongoing" and self.records_may_be_missing and stable == end == self.first_offset:
            self.first_offset = -1
        if state == "Ongoing" and self.first_offset >= 0:
            assert stable == self.first_offset, f"{self.name}: last stable offset {stable} of {end}"
        else:
            assert stable == end, f"{self.name} is {state}: last stable offset {stable} of {end}"

    def _check_offset(self, connection: Client, state: str) -> None:
        if self.offset is not None:
            group, offset = self.offset
            wanted = offset if state == "CompleteCommit" else -1
            assert committed(connection, group, self.topic, 0) == wanted, f"{self.name} is {state}"

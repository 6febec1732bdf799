"""Migrants: members of one group that speak the classic or the newer protocol, life by life, and commit all the time.

Each offset that a member commits is larger than all that were committed in the partition before (`Claims`). So a commit
is lost if a member that is assigned a partition finds a smaller offset than one that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.schema import Message
from tests.scenarios.worker import Worker
from tests.wire.coordinators import field_of
from tests.wire.roaming_client import Coordinated, RoamingClient

CONSUMER, CLASSIC = "consumer", "classic"
SESSION_MS, REBALANCE_MS = 1500, 2000
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of the brokers."""
STAYS_S, PAUSE_S = (0.3, 2.0), 0.02
LEAVES = 0.8
"""How often a life ends by leaving. The others end without a word."""
REJOIN = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""The member has lost everything, and joins again."""
NOT_COMMITTED = REJOIN | {ErrorCode.STALE_MEMBER_EPOCH}


class Orders(NamedTuple):
    """The topic that the group is subscribed to."""

    topic: str
    topic_id: UUID
    partitions: int


class Claims:
    """What has been committed in one group; members share it."""

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        """The last offset by partition."""
        self.commits: Counter[str] = Counter()
        """The number of acknowledged commits by protocol."""
        self._sent: Counter[int] = Counter()
        self._lock = threading.Lock()

    def next(self, partition: int) -> int:
        with self._lock:
            self._sent[partition] += 1
            return self._sent[partition]

    def committed(self, partition: int, offset: int, protocol: str) -> None:
        with self._lock:
            self.acknowledged[partition] = max(self.acknowledged[partition], offset)
            self.commits[protocol] += 1

    def check(self, partition: int, found: int, before: int) -> None:
        """`found` is stored. `before`: what had been acknowledged when it was asked for."""
        assert before <= max(found, 0), f"partition {partition}: {found} is committed, {before} was acknowledged"
        assert found <= self._sent[partition], f"partition {partition}: nobody has committed {found}"


class Member:
    """A life in the group. A subclass speaks one of the protocols; `_beat` does what is due, also after a failure."""

    protocol: str

    def __init__(self, client: RoamingClient, group: str, orders: Orders, claims: Claims, member_id: str = "") -> None:
        self._client, self._key, self._claims = client, Coordinated(0, group), claims
        self._topic, self._topic_id, self._partitions = orders
        self.member_id = member_id
        self.epoch = 0
        self._owned: frozenset[int] = frozenset()
        self._checked: frozenset[int] = frozenset()
        """Those of its partitions whose offsets it has looked up."""

    def live(self, until_s: float, is_over: threading.Event) -> None:
        while time.monotonic() < until_s and not is_over.wait(PAUSE_S):
            self._beat()
            self._look_up(self._owned - self._checked)
            for partition in sorted(self._owned & self._checked):
                self._commit(partition)

    def leave(self) -> None:
        raise NotImplementedError

    def _beat(self) -> None:
        raise NotImplementedError

    def _own(self, partitions: Iterable[int]) -> None:
        self._owned = frozenset(partitions)
        self._checked &= self._owned

    def _lose_everything(self) -> None:
        self._own(())

    def _ask(self, request: Message, version: int, error: str = "error_code") -> Any:
        return self._client.ask(self._key, request, version, lambda answer: field_of(answer, error))

    def _look_up(self, partitions: frozenset[int]) -> None:
        if not partitions:
            return
        before = {partition: self._claims.acknowledged[partition] for partition in partitions}
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(
            name=self._topic, topic_id=self._topic_id, partition_indexes=sorted(partitions)
        )
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self._key.name, member_id=self.member_id, member_epoch=self.epoch, topics=[topic]
        )
        answer = self._ask(OffsetFetchRequest(groups=[group]), 9 + len(partitions) % 2, "groups.error_code")
        (found,) = answer.groups
        if found.error_code in NOT_COMMITTED:
            return
        assert found.error_code == 0, ErrorCode.of(found.error_code)
        for each in found.topics[0].partitions:
            assert each.error_code == 0, ErrorCode.of(each.error_code)
            self._claims.check(each.partition_index, each.committed_offset, before[each.partition_index])
        self._checked |= partitions

    def _commit(self, partition: int) -> None:
        offset = self._claims.next(partition)
        each = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=self._topic, topic_id=self._topic_id, partitions=[each]
        )
        request = OffsetCommitRequest(
            group_id=self._key.name,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[topic],
        )
        error = "topics.partitions.error_code"
        code = field_of(self._ask(request, 9 + offset % 2, error), error)
        assert code == 0 or code in NOT_COMMITTED, ErrorCode.of(code)
        if code == 0:
            self._claims.committed(partition, offset, self.protocol)


class ConsumerMember(Member):
    """Speaks the newer protocol. It gives up at once what it must: nothing is under way when it sends a heartbeat."""

    protocol = CONSUMER

    def _beat(self) -> None:
        owned = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._key.name,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topic_partitions=[owned] if self._owned else [],
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = REBALANCE_MS, [self._topic]
        answer = self._ask(request, 1)
        if answer.error_code in REJOIN:
            self.epoch = 0
            self._lose_everything()
            return
        assert answer.error_code == 0, f"{ErrorCode.of(answer.error_code)}: {answer.error_message}"
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            assert {each.topic_id for each in topics} <= {self._topic_id}
            self._own(partition for each in topics for partition in each.partitions)

    def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._key.name, member_id=self.member_id, member_epoch=-1, topic_partitions=[]
        )
        code = self._ask(request, 1).error_code
        assert code == 0 or code in REJOIN, ErrorCode.of(code)


class ClassicMember(Member):
    """Speaks the classic protocol, eagerly: it gives up everything before it joins again."""

    protocol = CLASSIC
    has_joined = False

    def _beat(self) -> None:
        if not self.has_joined:
            self._join()
            return
        request = HeartbeatRequest(group_id=self._key.name, generation_id=self.epoch, member_id=self.member_id)
        self._is_member(self._ask(request, 4).error_code)

    def _is_member(self, code: int) -> bool:
        """Returns whether the error is none. After the others of REJOIN it must join again."""
        assert code == 0 or code in REJOIN, ErrorCode.of(code)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code:
            self._lose_everything()
            self.has_joined = False
        return code == 0

    def _join(self) -> None:
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=[self._topic]), 1)
        request = JoinGroupRequest(
            group_id=self._key.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        joined = self._ask(request, 9)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        elif self._is_member(joined.error_code):
            self.epoch, self.member_id = joined.generation_id, joined.member_id
            self._sync(joined)

    def _sync(self, joined: Any) -> None:
        """The leader of a classic group gives the partitions to the members in turn."""
        members = sorted(member.member_id for member in joined.members)
        shares = {each: [p for p in range(self._partitions) if members[p % len(members)] == each] for each in members}
        request = SyncGroupRequest(
            group_id=self._key.name,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=self._assignment(share))
                for each, share in shares.items()
            ],
        )
        answer = self._ask(request, 5)
        if self._is_member(answer.error_code):
            _, told = decode_versioned(ConsumerProtocolAssignment, bytes(answer.assignment))
            self._own(partition for each in told.assigned_partitions for partition in each.partitions)
            self.has_joined = True

    def _assignment(self, share: list[int]) -> bytes:
        topic = ConsumerProtocolAssignment.TopicPartition(topic=self._topic, partitions=share)
        return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic] if share else []), 1)

    def leave(self) -> None:
        members = [LeaveGroupRequest.MemberIdentity(member_id=self.member_id)]
        answer = self._ask(LeaveGroupRequest(group_id=self._key.name, members=members), 5)
        assert answer.error_code in (0, ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.of(answer.error_code)


class Migrant(Worker):
    """Lives one life after the other; `protocols` are those that its next lives may have."""

    def __init__(self, bootstrap: str, name: str, group: str, orders: Orders, claims: Claims, chance: Random) -> None:
        super().__init__(bootstrap, name)
        self.protocols = [CONSUMER, CLASSIC]
        self._group, self._orders, self._claims, self._chance = group, orders, claims, chance

    def _work(self) -> None:
        while not self._is_over.is_set():
            member = self._born()
            member.live(time.monotonic() + self._chance.uniform(*STAYS_S), self._is_over)
            if self._chance.random() < LEAVES:
                member.leave()

    def _born(self) -> Member:
        arguments = self._client, self._group, self._orders, self._claims
        if self._chance.choice(self.protocols) == CLASSIC:
            return ClassicMember(*arguments)
        return ConsumerMember(*arguments, member_id=f"{self.name}-{self._chance.getrandbits(64):x}")

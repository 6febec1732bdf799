"""Members that are alone in their group for some seconds. They commit offsets that expire soon: of the topic to which
they are subscribed, which stay while they belong to the group, and of another one. When they have left, the offsets
expire, and the group goes with the last one. Some do not leave alone: another member has begun to join, and both leave
at once, when the group waits for the first one to join again."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

from odradek.protocol.compiler import encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.transactions import commit_codes, commit_topics
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Commit, Committed, History, Outcome

PASSING_GROUPS = tuple(f"passing {number}" for number in range(20))
"""Each is used once, since nobody knows when the offsets of the one before are gone."""
COME_EVERY_S = 2.0
STAY_S = 5.0
HEARTBEAT_S = 0.5
BOTH_LEAVE_AFTER_S = (0.01, 0.3)
"""Shorter than a session."""
RETENTION_MS = 1000
SESSION_TIMEOUT_MS = 3000
ASSIGNMENT = b"all"


class PassingMembers:
    """`kept`: a partition of the topic to which they are subscribed, `other`: one of another topic. `run` returns after
    `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        *,
        name: str,
        kept: TopicPartition,
        other: TopicPartition,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._history = history
        self._source = source
        self._name = name
        self._kept = kept
        self._other = other

    async def run(self) -> None:
        """One after the other, until the end."""
        for number in count():
            await asyncio.sleep(self._source.expovariate(1 / COME_EVERY_S))
            if self.is_ending or number == len(PASSING_GROUPS):
                return
            await self._pass(PASSING_GROUPS[number])

    async def _pass(self, group: str) -> None:
        member_id = await self._known(group)
        if not member_id:
            return
        joined = await self._ask(group, self._join(group, member_id))
        if joined is None or joined.error_code != ErrorCode.NONE:
            return
        who = {"group_id": group, "member_id": joined.member_id}
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=ASSIGNMENT)
        await self._ask(
            group,
            SyncGroupRequest(
                **who,
                generation_id=joined.generation_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[given],
            ),
        )
        await self._stay(group, joined.member_id, joined.generation_id)
        leaving = [joined.member_id]
        other = await self._known(group) if self._source.random() < 0.5 else ""
        if other:
            joining = asyncio.get_running_loop().create_task(self._ask(group, self._join(group, other), "join"))
            await asyncio.sleep(self._source.uniform(*BOTH_LEAVE_AFTER_S))
            leaving.append(other)
        members = [LeaveGroupRequest.MemberIdentity(member_id=each) for each in leaving]
        await self._ask(group, LeaveGroupRequest(group_id=group, members=members))
        if other:
            await joining

    async def _known(self, group: str) -> str:
        """Returns the id of a member that may join. Empty: there is none."""
        found = await self._ask(group, self._join(group, ""))
        return found.member_id if found is not None and found.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""

    async def _stay(self, group: str, member_id: str, generation: int) -> None:
        commit = self._history.begin(
            Commit(process=self._name, group=group, offsets={self._kept: 1}, generation=generation)
        )
        is_member = await self._commit(group, member_id, generation, self._kept)
        self._history.end(commit, Outcome.OK if is_member else Outcome.UNKNOWN)
        for _ in range(int(STAY_S / HEARTBEAT_S)):
            await asyncio.sleep(HEARTBEAT_S)
            beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
            await self._ask(group, beat)
        asked = self._history.begin(Committed(process=self._name, group=group))
        offset = await self._committed(group)
        if offset is not None and await self._commit(group, member_id, generation, self._other):
            asked.offsets = {self._kept: offset}
            self._history.end(asked, Outcome.OK)
        else:
            self._history.end(asked, Outcome.UNKNOWN)

    async def _commit(self, group: str, member_id: str, generation: int, partition: TopicPartition) -> bool:
        """Commits an offset that expires. Returns whether it is certain that the member still belongs to the group."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            retention_time_ms=RETENTION_MS,
            topics=commit_topics({partition: 1}),
        )
        answer = await self._ask(group, request)
        return answer is not None and commit_codes(answer) == [ErrorCode.NONE]

    async def _committed(self, group: str) -> int | None:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(
            name=self._kept.topic, partition_indexes=[self._kept.partition]
        )
        answer = await self._ask(group, OffsetFetchRequest(group_id=group, topics=[topic]))
        if answer is None or answer.error_code or not answer.topics:
            return None
        (found,) = answer.topics[0].partitions
        return None if found.error_code else int(found.committed_offset)

    def _join(self, group: str, member_id: str) -> Message:
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=[self._kept.topic]), 1)
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )

    async def _ask(self, group: str, request: Message, purpose: str = "") -> Any:
        """Returns the coordinator's answer, or None if there is none for now. Each `purpose` has its own connection."""
        try:
            answer = await self._cluster.ask_coordinator(GROUP, group, request, purpose=purpose)
        except (NotSent, Unanswered):
            await self._cluster.back_off()
            return None
        if getattr(answer, "error_code", 0):
            self._cluster.forget_coordinator(GROUP, group)
        return answer

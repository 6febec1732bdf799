"""Clients that begin to join a group and do not go on. The group must do without them.

turned away     asks for a member id, and leaves with it, or is never heard of again
cut off         joins, and its connection ends before the answer
silent          joins twice, and sends no SyncGroup for its generation, in which it may lead
commits only    commits an offset without being a member, which only an empty group accepts
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from odradek.protocol.compiler import encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups import JoinGroupRequest, LeaveGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.member import MOVED
from tests.simulation.client.transactions import commit_topics
from tests.simulation.client.wire import NotSent, Unanswered

DESERT_EVERY_S = 4.0
SILENT_EVERY = 5
"""One of so many: the others wait for it as long as they may."""
SESSION_TIMEOUT_MS = 1500
LONG_SESSION_TIMEOUT_MS = 12_000
"""Longer than a rebalance takes, so that it ends while the silent one still belongs to the group."""
REBALANCE_TIMEOUT_MS = 1500
CUT_OFF_AFTER_S = 0.05
ANSWER_TIMEOUT_S = 8.0


class Deserters:
    """`hang_up` ends the client's connections. `unused`: a partition whose offset in the group nobody asks for. `run`
    returns after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        source: Random,
        hang_up: Callable[[], object],
        *,
        group: str,
        topic: str,
        unused: TopicPartition,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._source = source
        self._hang_up = hang_up
        self._group = group
        self._topic = topic
        self._unused = unused

    async def run(self) -> None:
        """One after the other, until the end."""
        number = 0
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / DESERT_EVERY_S))
            number += 1
            await self._ask(self._commit())
            if number % SILENT_EVERY == 0:
                await self._be_silent()
            elif self._source.random() < 0.5:
                await self._turn_away()
            else:
                await self._be_cut_off()

    async def _turn_away(self) -> None:
        member_id = await self._member_id()
        if member_id and self._source.random() < 0.5:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            await self._ask(LeaveGroupRequest(group_id=self._group, members=[identity]))

    async def _be_cut_off(self) -> None:
        member_id = await self._member_id()
        if member_id:
            joining = asyncio.get_running_loop().create_task(self._ask(self._join(member_id, SESSION_TIMEOUT_MS)))
            await asyncio.sleep(CUT_OFF_AFTER_S)
            self._hang_up()
            await joining

    async def _be_silent(self) -> None:
        member_id = await self._member_id()
        if member_id:
            for _ in range(2):  # the second time as if the answer had been lost
                await self._ask(self._join(member_id, LONG_SESSION_TIMEOUT_MS))

    async def _member_id(self) -> str:
        """A member id to join with; empty if there is none for now."""
        answer = await self._ask(self._join("", SESSION_TIMEOUT_MS))
        is_given = answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id if is_given else ""

    def _join(self, member_id: str, session_timeout_ms: int) -> Message:
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=[self._topic]), 1)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="roundrobin", metadata=subscription)],
        )

    def _commit(self) -> Message:
        return OffsetCommitRequest(group_id=self._group, topics=commit_topics({self._unused: 1}))

    async def _ask(self, request: Message) -> Any:
        """Returns the coordinator's answer, or None if there is none for now."""
        try:
            answer = await self._cluster.ask_coordinator(GROUP, self._group, request, timeout_s=ANSWER_TIMEOUT_S)
        except (NotSent, Unanswered):
            await self._cluster.back_off()
            return None
        if getattr(answer, "error_code", 0) in MOVED:
            self._cluster.forget_coordinator(GROUP, self._group)
        return answer

"""Requests to a group that its coordinator must refuse: of members that left long ago or never were, and in generations
that were long ago or never were. A heartbeat is asked, too, but not judged: while a group loads, all are welcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.groups import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.member import MOVED
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.transaction_history import Stray

ASK_EVERY_S = 0.7
LONG_AGO, NEVER_YET = -4, 1000
"""How far the generation is from that of the member. A lost coordinator may take a group back by one."""
NOBODY = "nobody-00000000-0000-4000-8000-000000000000"


class Strays:
    """`members()` returns member ids and generations as their clients have them. `run` returns after `is_ending` was
    set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        members: Callable[[], Sequence[tuple[str, int]]],
        *,
        name: str,
        group: str,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._history = history
        self._source = source
        self._members = members
        self._name = name
        self._group = group

    async def run(self) -> None:
        """Asks until the end."""
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / ASK_EVERY_S))
            members = self._members()
            if not members:
                continue
            member_id, generation = self._source.choice(members)
            another = generation + self._source.choice((LONG_AGO, NEVER_YET))
            if another > 0:
                await self._heartbeat(member_id, another)
                await self._sync(member_id, another)
            await self._sync(NOBODY, generation)
            await self._leave(NOBODY)

    async def _heartbeat(self, member_id: str, generation: int) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=member_id)
        try:
            await self._cluster.ask_coordinator(GROUP, self._group, request)
        except (NotSent, Unanswered):
            await self._cluster.back_off()

    async def _sync(self, member_id: str, generation: int) -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="roundrobin",
        )
        what = f"SyncGroup of {member_id or 'nobody'} in generation {generation}"
        await self._ask(what, request, lambda answer: answer.error_code)

    async def _leave(self, member_id: str) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        await self._ask(
            f"LeaveGroup of {member_id}",
            request,
            lambda answer: answer.error_code or answer.members[0].error_code,
        )

    async def _ask(self, what: str, request: Any, code_of: Callable[[Any], int]) -> None:
        stray = self._history.begin(Stray(process=self._name, group=self._group, what=what))
        try:
            answer = await self._cluster.ask_coordinator(GROUP, self._group, request)
        except (NotSent, Unanswered) as error:
            self._history.end(stray, Outcome.UNKNOWN, str(error))
            await self._cluster.back_off()
            return
        code = ErrorCode.of(code_of(answer))
        self._history.end(stray, Outcome.OK if code is ErrorCode.NONE else Outcome.FAILED, code.name)
        if code in MOVED:
            self._cluster.forget_coordinator(GROUP, self._group)

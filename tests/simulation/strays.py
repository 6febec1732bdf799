"""Requests to a group that its coordinator must refuse: of members that left long ago or never were, in generations
that were long ago or never were, for another protocol; and offsets that a transaction commits in the name of such
members. A heartbeat is asked, too, but not judged: while a group loads, all are welcome. Neither are commits in the
name of members and generations that may exist, nor deletions of what they have committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.groups import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.member import MOVED
from tests.simulation.client.offsets_producer import OffsetsProducer
from tests.simulation.client.transactions import commit_codes, commit_topics, txn_commit_request
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.transaction_history import Stray

STRAYS = "id of strays"
ASK_EVERY_S = 0.7
COMMIT_EVERY, TRANSACT_EVERY = 4, 5
"""Every so many requests. A commit extends the session of a member that may stand still."""
LONG_AGO, NEVER_YET = -4, 1000
"""How far the generation is from that of the member. A lost coordinator may take a group back by one."""
NOBODY = "nobody-00000000-0000-4000-8000-000000000000"


class Strays:
    """`members()` returns member ids and generations as their clients have them. `unused`: a partition whose offset in
    the group nobody asks for. `run` returns after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        members: Callable[[], Sequence[tuple[str, int]]],
        producer: OffsetsProducer,
        *,
        name: str,
        group: str,
        unused: TopicPartition,
    ) -> None:
        self.is_ending = False
        self._producer = producer
        self._unused = unused
        self._cluster = cluster
        self._history = history
        self._source = source
        self._members = members
        self._name = name
        self._group = group

    async def run(self) -> None:
        """Asks until the end."""
        sending = asyncio.get_running_loop().create_task(self._producer.run())
        asked = 0
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / ASK_EVERY_S))
            members = self._members()
            if not members:
                continue
            asked += 1
            member_id, generation = self._source.choice(members)
            if asked % COMMIT_EVERY == 0:
                await self._commit(member_id, generation)
                if self._source.random() < 0.5:
                    await self._delete()
            await self._sync(member_id, generation, protocol="range")
            if asked % TRANSACT_EVERY == 0 and generation > 0:  # without one, an empty group accepts all
                await self._transact(member_id, generation)
            another = generation + self._source.choice((LONG_AGO, NEVER_YET))
            if another > 0:
                await self._heartbeat(member_id, another)
                await self._sync(member_id, another)
            await self._sync(NOBODY, generation)
            await self._leave(NOBODY)
        sending.cancel()

    async def _commit(self, member_id: str, generation: int) -> None:
        """A commit of the member, at any moment of its generation."""
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=commit_topics({self._unused: 1}),
        )
        await self._send(request)

    async def _delete(self) -> None:
        """Removes what was committed, also in transactions that are open."""
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=self._unused.topic,
            partitions=[
                OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=self._unused.partition),
            ],
        )
        await self._send(OffsetDeleteRequest(group_id=self._group, topics=[topic]))

    async def _transact(self, member_id: str, generation: int) -> None:
        transaction = await self._producer.begin_with(self._group)
        if transaction is None:
            return
        for who, when, is_wrong in (
            (member_id, generation, False),
            ("", -1, False),
            (member_id, generation + NEVER_YET, True),
            (NOBODY, generation, True),
        ):
            request = txn_commit_request(self._producer, self._group, {self._unused: 1}, who, when)
            if is_wrong:
                what = f"TxnOffsetCommit of {who} in generation {when}"
                await self._ask(what, request, lambda answer: commit_codes(answer)[0])
            else:
                await self._send(request)
        await self._producer.finish(transaction, commits=self._source.random() < 0.7)

    async def _send(self, request: Message) -> None:
        try:
            await self._cluster.ask_coordinator(GROUP, self._group, request)
        except (NotSent, Unanswered):
            await self._cluster.back_off()

    async def _heartbeat(self, member_id: str, generation: int) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=member_id)
        await self._send(request)

    async def _sync(self, member_id: str, generation: int, protocol: str = "roundrobin") -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name=protocol,
        )
        what = f"SyncGroup of {member_id or 'nobody'} in generation {generation} for {protocol}"
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

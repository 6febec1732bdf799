"""A member of a classic group: it joins, reads its share, commits now and then, and leaves when asked to.

The group is rebalanced eagerly: before a member joins again it commits and gives up its partitions. It does so even if
it has just learned that the group goes on without it, as a process does that was stopped for a while. And when it has
got its next share, it sometimes commits once more what it had in the generation before: a commit that was on its way
for long. The coordinator must refuse both.

A static member has an instance id. It does not leave the group when it ends: the next one of its instance takes its
place, and the coordinator refuses it from then on, if it is still at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, REQUEST_TIMEOUT_S, Cluster
from tests.simulation.client.consumer import Consumer
from tests.simulation.client.requests import by_topic, in_rounds
from tests.simulation.client.transactions import commit_codes, commit_topics
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Commit, Committed, History, Outcome, Synced

SESSION_TIMEOUT_MS = 4000
REBALANCE_TIMEOUT_MS = 5000
HEARTBEAT_S = 1.0
COMMIT_S = 1.0
MIN_BYTES = 2000
HEARTBEATS = "heartbeats"
FORGETFUL = 0.1
"""How often a leader gives one member nothing."""
LATE_COMMITS = 0.7
"""How often a member commits again in its earlier generation."""
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
NOT_COMMITTED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Share(NamedTuple):
    """What a member may commit: how far it has read as this member of this generation."""

    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, int]


class Member:
    """Start `run` as a task of the client's node; `leave` makes it end."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        *,
        name: str,
        group: str,
        topic: str,
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.history = history
        self.consumer = Consumer(cluster, history, name=name, min_bytes=MIN_BYTES)
        self._source = source
        self._group = group
        self._topic = topic
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._member_id = ""
        self._generation = -1
        self._is_leaving = False
        self._commits_at = 0.0

    @property
    def identity(self) -> tuple[str, int]:
        """Its member id, empty if it has none, and its generation."""
        return self._member_id, self._generation

    def leave(self) -> None:
        """Asks the member to leave the group after its next commit."""
        self._is_leaving = True

    async def run(self) -> None:
        """Takes part in the group until `leave`."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self.consumer.run())
        before: Share | None = None
        while not self._is_leaving:
            assigned = await self._join()
            if assigned is None:
                await self.cluster.back_off()
                continue
            offsets = await self.fetch_offsets(assigned)
            if offsets is None:
                continue
            self.consumer.assign({partition: max(offset, 0) for partition, offset in offsets.items()})
            member_id, generation = self._member_id, self._generation
            is_over = before is not None and (before.member_id, before.generation) != (member_id, generation)
            if before is not None and is_over and self._source.random() < LATE_COMMITS:
                await self._commit(before)
            await self._take_part()
            before = Share(member_id, generation, self._positions())
            await self._commit(before)
            self.consumer.assign({})
        reading.cancel()
        await self._say_goodbye()

    # --- membership ---------------------------------------------------------------------------------------------

    async def _join(self) -> list[TopicPartition] | None:
        """Returns the assigned partitions, or None if joining failed for now."""
        subscription = ConsumerProtocolSubscription(topics=[self._topic])
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name="roundrobin", metadata=encode_versioned(subscription, 1)
        )
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = await self._ask(request, timeout_s=REBALANCE_TIMEOUT_MS / 1000 + REQUEST_TIMEOUT_S)
        if joined is None:
            return None
        code = ErrorCode.of(joined.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return await self._join()
        if code is not ErrorCode.NONE:
            self._note_error(code)
            return None
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = await self._assign(joined) if joined.leader == joined.member_id else {}
        return await self._sync(assignments)

    async def _assign(self, joined: Any) -> Mapping[str, Sequence[TopicPartition]]:
        while not (partitions := self.cluster.partitions_of(self._topic)):
            await self.cluster.refresh([self._topic])
        members = sorted(member.member_id for member in joined.members)
        if len(members) > 1 and self._source.random() < FORGETFUL:
            members.pop()
        return in_rounds(partitions, members)

    async def _sync(self, assignments: Mapping[str, Sequence[TopicPartition]]) -> list[TopicPartition] | None:
        of_topic = ConsumerProtocolAssignment.TopicPartition
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name="roundrobin",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=encode_versioned(
                        ConsumerProtocolAssignment(
                            assigned_partitions=[
                                of_topic(topic=topic, partitions=numbers)
                                for topic, numbers in by_topic(partitions).items()
                            ]
                        ),
                        1,
                    ),
                )
                for member_id, partitions in assignments.items()
            ],
        )
        synced = await self._ask(request, timeout_s=REBALANCE_TIMEOUT_MS / 1000)
        if synced is None:
            return None
        code = ErrorCode.of(synced.error_code)
        if code is not ErrorCode.NONE:
            self._note_error(code)
            return None
        partitions = []
        if synced.assignment:  # the leader may have given it nothing
            _, assignment = decode_versioned(ConsumerProtocolAssignment, synced.assignment)
            partitions = [
                TopicPartition(topic.topic, number)
                for topic in assignment.assigned_partitions
                for number in topic.partitions
            ]
        self.synced(partitions)
        return partitions

    def synced(self, partitions: Sequence[TopicPartition]) -> None:
        """It has got its share."""
        self.history.note(
            Synced(
                process=self.name,
                group=self._group,
                generation=self._generation,
                instance_id=self._instance_id,
            )
        )

    async def _take_part(self) -> None:
        """Sends heartbeats and commits until the generation ends."""
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while not self._is_leaving:
            await asyncio.sleep(HEARTBEAT_S)
            request = HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
            )
            answer = await self._ask(request, purpose=HEARTBEATS)
            if answer is None or answer.error_code in MOVED:
                if loop.time() - heard_at > self._session_timeout_ms / 1000:
                    return
                continue
            heard_at = loop.time()
            if answer.error_code != ErrorCode.NONE:
                self._note_error(ErrorCode.of(answer.error_code))
                return
            if loop.time() - self._commits_at >= COMMIT_S:
                await self._commit(Share(self._member_id, self._generation, self._positions()))

    async def _say_goodbye(self) -> None:
        if self._member_id and self._instance_id is None:
            identity = LeaveGroupRequest.MemberIdentity(member_id=self._member_id)
            await self._ask(LeaveGroupRequest(group_id=self._group, members=[identity]))

    def _note_error(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id, self._generation = "", -1
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._is_leaving = True

    async def _ask(self, request: Any, *, timeout_s: float = REQUEST_TIMEOUT_S, purpose: str = "") -> Any:
        """Returns the coordinator's answer, or None if there is none for now."""
        try:
            answer = await self.cluster.ask_coordinator(
                GROUP, self._group, request, purpose=purpose, timeout_s=timeout_s
            )
        except (NotSent, Unanswered):
            await self.cluster.back_off()
            return None
        if getattr(answer, "error_code", 0) in MOVED:
            self.cluster.forget_coordinator(GROUP, self._group)
            await self.cluster.back_off()
        return answer

    # --- offsets ------------------------------------------------------------------------------------------------

    def _positions(self) -> dict[TopicPartition, int]:
        return {partition: position.offset for partition, position in self.consumer.positions.items()}

    async def _commit(self, share: Share) -> None:
        self._commits_at = asyncio.get_running_loop().time()
        if not share.offsets:
            return
        commit = self.history.begin(
            Commit(
                process=self.name,
                group=self._group,
                offsets=share.offsets,
                generation=share.generation,
                instance_id=self._instance_id,
            )
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=share.generation,
            member_id=share.member_id,
            group_instance_id=self._instance_id,
            topics=commit_topics(share.offsets),
        )
        try:
            answer = await self.cluster.ask_coordinator(GROUP, self._group, request)
        except NotSent as error:
            self.history.end(commit, Outcome.FAILED, str(error))
            return
        except Unanswered as error:
            self.history.end(commit, Outcome.UNKNOWN, str(error))
            return
        codes = [ErrorCode.of(code) for code in commit_codes(answer) if code != ErrorCode.NONE]
        if not codes:
            self.history.end(commit, Outcome.OK)
            return
        if codes[0] in MOVED:
            self.cluster.forget_coordinator(GROUP, self._group)
        refused = all(code in NOT_COMMITTED for code in codes) and len(codes) == len(share.offsets)
        self.history.end(commit, Outcome.FAILED if refused else Outcome.UNKNOWN, codes[0].name)

    async def fetch_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Returns the group's committed offsets, -1 for none; None if the generation has probably ended."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + REBALANCE_TIMEOUT_MS / 1000
        while loop.time() < give_up_at and not self._is_leaving:
            offsets = await committed_offsets(self.cluster, self.history, self.name, self._group, partitions)
            if offsets is not None:
                return offsets
            await self.cluster.back_off()
        return None


async def committed_offsets(
    cluster: Cluster,
    history: History,
    name: str,
    group: str,
    partitions: Sequence[TopicPartition],
    *,
    require_stable: bool = True,
) -> dict[TopicPartition, int] | None:
    """Asks for the group's committed offsets once; None if there was no answer, or (`require_stable`) offsets are
    pending."""
    operation = history.begin(Committed(process=name, group=group))
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
        require_stable=require_stable,
    )
    try:
        answer = await cluster.ask_coordinator(GROUP, group, request)
    except (NotSent, Unanswered) as error:
        history.end(operation, Outcome.UNKNOWN, str(error))
        return None
    found = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in answer.topics
        for partition in topic.partitions
    }
    codes = [answer.error_code, *(partition.error_code for partition in found.values())]
    wrong = [ErrorCode.of(code) for code in codes if code != ErrorCode.NONE]
    if wrong:
        cluster.forget_coordinator(GROUP, group)
        history.end(operation, Outcome.UNKNOWN, wrong[0].name)
        return None
    operation.offsets = {key: partition.committed_offset for key, partition in found.items()}
    history.end(operation, Outcome.OK)
    return dict(operation.offsets)

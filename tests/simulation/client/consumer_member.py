"""A member of a consumer group of KIP-848: it sends heartbeats, and consumes what they give it.

It begins to consume a partition when it is told to. What it must give up it commits and gives up at once, after a
while, or not before the coordinator has lost its patience; then it tells the coordinator. When that has answered, it
sometimes commits once more what it has given up, in the epoch before: a commit that was on its way for long. The
coordinator must refuse it.

A heartbeat without an answer, or whose answer came too late, is followed by one that says everything. A member that
hears that it is none gives up everything, and joins again under its id.

A static member has an instance id. It leaves for a while, and the next one of its instance comes back in time, or not.
The next one may come while the one before is there: it is refused until that has left.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.consumer import Consumer
from tests.simulation.client.member import HEARTBEATS, MIN_BYTES, MOVED, NOT_COMMITTED, committed_offsets
from tests.simulation.client.transactions import commit_codes, commit_topics
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Commit, History, Outcome
from tests.simulation.membership_history import TopicIdPartition
from tests.simulation.memberships import STALE_CODES, Membership, Memberships

SESSION_MS, REBALANCE_MS = 5000, 3000
HEARTBEAT_S, COMMIT_S = 0.8, 1.0
ANSWERED_WITHIN_S = (0.4, 2.0)
"""How long it waits for an answer: often not long enough."""
OBEYS_LATE_S, OBEYS_TOO_LATE_S = (0.1, 2.0), (4.5, 7.0)
LATE, TOO_LATE = 0.35, 0.12
"""How often."""
LATE_COMMITS = 0.7
WITH_EPOCHS = 9
"""The version of OffsetCommit."""
JOINING, LEAVING, AWAY = 0, -1, -2
GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
AGAIN = MOVED | {
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}
REFUSED = NOT_COMMITTED | STALE_CODES | {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}


class End(Enum):
    """How a member ends."""

    LEAVES = LEAVING
    GOES_FOR_A_WHILE = AWAY
    DESERTS = JOINING
    """It says nothing."""


class Subscription(NamedTuple):
    """What a member wants: topics by name, and those whose names fit a regular expression."""

    topics: tuple[str, ...] = ()
    regex: str = ""

    def __contains__(self, topic: object) -> bool:
        return topic in self.topics or re.fullmatch(self.regex, str(topic)) is not None


class _Given(NamedTuple):
    """What a member has given up, and how far it had read that, in which epoch."""

    epoch: int
    offsets: Mapping[TopicPartition, int]


class ConsumerMember:
    """Start `run` as a task of the client's node; `end` makes it end. `reads`: it consumes the topics that it names,
    and commits offsets."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        memberships: Memberships,
        *,
        name: str,
        member_id: str,
        subscription: Subscription,
        instance_id: str | None = None,
        assignor: str | None = None,
        reads: bool = True,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.history = history
        self.memberships = memberships
        self.membership = Membership(name, member_id, min(SESSION_MS, REBALANCE_MS) * 1000, REBALANCE_MS * 1000)
        self.consumer = Consumer(cluster, history, name=name, min_bytes=MIN_BYTES)
        self.subscription = subscription
        self.instance_id = instance_id
        self._source = source
        self._assignor = assignor
        self._reads = reads
        self._end: End | None = None
        self._epoch = JOINING
        self._says_all = True
        self._said: frozenset[TopicIdPartition] | None = None
        """What it said last that it owns, and was heard."""
        self._obeys_at: float | None = None
        self._given: _Given | None = None
        self._commits_at = 0.0
        self._committed: dict[TopicPartition, int] = {}
        self._woken = asyncio.Event()
        self._beginning: dict[asyncio.Task[None], None] = {}
        """What looks for offsets to read from."""

    @property
    def group(self) -> str:
        """The group's id."""
        return self.memberships.group

    @property
    def epoch(self) -> int:
        """What it was told last, 0 if it is no member."""
        return self._epoch

    @property
    def is_ending(self) -> bool:
        """Whether it has been asked to end."""
        return self._end is not None

    def end(self, how: End) -> None:
        """Asks the member to end."""
        self._end = how
        self._woken.set()

    def subscribe(self, subscription: Subscription) -> None:
        """Changes what it is subscribed to."""
        self.subscription = subscription
        self._says_all = True

    async def run(self) -> None:
        """Takes part in the group until `end`."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self.consumer.run()) if self._reads else None
        while self._reads and not self.cluster.topic_ids.keys() >= {*self.subscription.topics}:
            await self.cluster.refresh(self.subscription.topics)
        while True:
            is_heard = await self._beat()
            if self.is_ending:
                break
            if is_heard:
                await self._commit_late()
                if loop.time() >= self._commits_at:
                    await self._commit(self._epoch, self._positions(self.membership.since))
            if await self._obey():
                continue
            await self._wait()
        if self._end is not End.DESERTS:
            await self._commit(self._epoch, self._positions(self.membership.since))
        if reading is not None:
            reading.cancel()
        self.consumer.assign({})
        await self._say_goodbye()

    async def _wait(self) -> None:
        """Until the next heartbeat, or the moment to obey."""
        loop = asyncio.get_running_loop()
        seconds = HEARTBEAT_S
        if self._obeys_at is not None:
            seconds = min(seconds, max(self._obeys_at - loop.time(), 0.0))
        self._woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    # --- heartbeats ---------------------------------------------------------------------------------------------

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        owned = frozenset(self.membership.since)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.membership.member_id,
            member_epoch=self._epoch,
            instance_id=self.instance_id,
        )
        if self._says_all or self._epoch == JOINING:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = list(self.subscription.topics)
            request.subscribed_topic_regex = self.subscription.regex
            request.server_assignor = self._assignor
        if self._says_all or owned != self._said:
            request.topic_partitions = _by_topic(owned)
        return request

    async def _beat(self) -> bool:
        """Returns whether the coordinator has answered that all is well."""
        request = self._request()
        self._says_all = False
        owned = frozenset(self.membership.since)
        if self._epoch == JOINING:
            self.memberships.joins(self.membership)
        sent_us = self._now_us()
        answer = await self._ask(request, self._source.uniform(*ANSWERED_WITHIN_S))
        if answer is None:
            self._says_all = True
            return False
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            self._said = owned
            self._epoch = answer.member_epoch
            await self._take(answer.assignment, sent_us)
            return True
        self._says_all = True
        if code in GONE and self._epoch != JOINING:
            self._is_no_member(code)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._is_no_member(code)
            self._end = End.DESERTS
        elif code in GONE or code in AGAIN:
            await self.cluster.back_off()
        else:
            raise RuntimeError(f"{self.name} got {code.name} for {request}")
        return False

    def _is_no_member(self, code: ErrorCode) -> None:
        self.memberships.gives_up_all(self.membership, code.name)
        self._epoch = JOINING
        self._said = None
        self._obeys_at = self._given = None
        self.consumer.assign({})

    async def _take(self, assignment: Any, sent_us: int) -> None:
        """Begins to consume what is new, and decides when to give up what it lacks."""
        before = frozenset(self.membership.since)
        assigned = None if assignment is None else _partitions_of(assignment.topic_partitions)
        self.memberships.told(self.membership, self._epoch, assigned, sent_us)
        loop = asyncio.get_running_loop()
        if not self.membership.surplus:
            self._obeys_at = None
        elif self._obeys_at is None:
            self._obeys_at = loop.time() + self._hesitates_s()
        new = frozenset(self.membership.since) - before
        if new and self._reads:
            task = loop.create_task(self._begin_to_read({each: self.membership.since[each] for each in new}))
            self._beginning[task] = None
            task.add_done_callback(self._beginning.pop)

    def _hesitates_s(self) -> float:
        chance = self._source.random()
        if chance < TOO_LATE:
            return self._source.uniform(*OBEYS_TOO_LATE_S)
        return self._source.uniform(*OBEYS_LATE_S) if chance < TOO_LATE + LATE else 0.0

    async def _obey(self) -> bool:
        """Gives up what it must if it is time to. Returns whether the next heartbeat is to say so at once."""
        if self._obeys_at is None or asyncio.get_running_loop().time() < self._obeys_at:
            return False
        self._obeys_at = None
        surplus = self.membership.surplus
        offsets = self._positions(surplus)
        await self._commit(self._epoch, offsets)
        self._given = _Given(self._epoch, offsets)
        self.memberships.gives_up(self.membership, sorted(surplus), "it was told to")
        kept = self._positions(self.membership.since)
        self.consumer.assign(kept)
        return True

    async def _say_goodbye(self) -> None:
        how = self._end
        is_member = self._epoch != JOINING
        self.memberships.gives_up_all(self.membership, "it ends")
        if how is None or how is End.DESERTS or not is_member:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.membership.member_id,
            member_epoch=how.value,
            instance_id=self.instance_id,
        )
        await self._ask(request, ANSWERED_WITHIN_S[1])

    async def _ask(self, request: ConsumerGroupHeartbeatRequest, timeout_s: float) -> Any:
        """Returns the coordinator's answer, or None if there is none for now."""
        try:
            answer = await self.cluster.ask_coordinator(
                GROUP, self.group, request, purpose=HEARTBEATS, timeout_s=timeout_s
            )
        except (NotSent, Unanswered):
            await self.cluster.back_off()
            return None
        if answer.error_code in MOVED:
            self.cluster.forget_coordinator(GROUP, self.group)
        return answer

    def _now_us(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e6)

    # --- records and offsets ------------------------------------------------------------------------------------

    async def _begin_to_read(self, since: Mapping[TopicIdPartition, int]) -> None:
        """Reads partitions from the group's offsets, if they are still the member's when those are known."""
        while True:
            named = self._named(each for each in since if self.membership.since.get(each) == since[each])
            if not named:
                return
            offsets = await committed_offsets(self.cluster, self.history, self.name, self.group, list(named))
            if offsets is not None:
                break
            await self.cluster.back_off()
        wanted = self._positions(self.membership.since)
        for partition, of in named.items():
            if self.membership.since.get(of) == since[of]:
                wanted[partition] = max(offsets[partition], 0)
                self._committed.pop(partition, None)
        self.consumer.assign(wanted)

    def _named(self, partitions: Any) -> dict[TopicPartition, TopicIdPartition]:
        """Those of topics whose names are known, by them."""
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        return {TopicPartition(names[each[0]], each[1]): each for each in sorted(partitions) if each[0] in names}

    def _positions(self, partitions: Collection[TopicIdPartition]) -> dict[TopicPartition, int]:
        """How far it has read these, without those that it has not begun to read."""
        positions = self.consumer.positions
        return {each: positions[each].offset for each in self._named(partitions) if each in positions}

    async def _commit_late(self) -> None:
        """Commits once more what it has given up, when the coordinator knows that it has."""
        given, self._given = self._given, None
        if given is not None and given.epoch < self._epoch and self._source.random() < LATE_COMMITS:
            await self._commit(given.epoch, given.offsets)

    async def _commit(self, epoch: int, offsets: Mapping[TopicPartition, int]) -> None:
        self._commits_at = asyncio.get_running_loop().time() + COMMIT_S
        if epoch == self._epoch:
            offsets = {each: offset for each, offset in offsets.items() if offset != self._committed.get(each)}
        if not offsets or epoch == JOINING:
            return
        partitions = list(self._named(_ids_of(self.cluster.topic_ids, offsets)).values())
        must = self.memberships.must_be_refused(self.membership, epoch, partitions)
        may = self.memberships.may_be_refused(self.membership, epoch, partitions)
        commit = self.history.begin(Commit(process=self.name, group=self.group, offsets=offsets, generation=epoch))
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=self.membership.member_id,
            group_instance_id=self.instance_id,
            topics=commit_topics(offsets),
        )
        try:
            answer = await self.cluster.ask_coordinator(GROUP, self.group, request, version=WITH_EPOCHS)
        except NotSent as error:
            self.history.end(commit, Outcome.FAILED, str(error))
            return
        except Unanswered as error:
            self.history.end(commit, Outcome.UNKNOWN, str(error))
            return
        codes = [ErrorCode.of(code) for code in commit_codes(answer) if code != ErrorCode.NONE]
        if not codes:
            self.history.end(commit, Outcome.OK)
            self._committed.update(offsets)
            if must:
                self.memberships.stale_was_accepted(self.membership, epoch, partitions)
            return
        if codes[0] in MOVED:
            self.cluster.forget_coordinator(GROUP, self.group)
        refused = all(code in REFUSED for code in codes) and len(codes) == len(offsets)
        self.history.end(commit, Outcome.FAILED if refused else Outcome.UNKNOWN, codes[0].name)
        if codes[0] in STALE_CODES and not may:
            self.memberships.good_was_refused(self.membership, epoch, partitions, codes[0])


def _ids_of(topic_ids: Mapping[str, UUID], partitions: Collection[TopicPartition]) -> list[TopicIdPartition]:
    return [(topic_ids[each.topic], each.partition) for each in partitions]


def _partitions_of(topics: Sequence[Any]) -> frozenset[TopicIdPartition]:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def _by_topic(partitions: Collection[TopicIdPartition]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]

"""The coordinator of groups with one shard, without a broker, with a manual clock, restarts, and a log whose appends a
test completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, cast

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.rebalance import GroupWaits
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.cluster_topics import ClusterTopics
from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.group import CONSUMER, ConsumerGroup
from odradek.broker.coordinator.group.consumer.requests import Work
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.coordinator import ConsumerGroups, GroupCoordinator
from odradek.broker.coordinator.group.member_requests import Joining, Syncing, join_refused
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import AppendFailed, Decision, NewShard
from odradek.broker.features.features import GROUP_VERSION
from odradek.protocol.compiler import encode_versioned
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from odradek.purgatory import CompletionQueue
from odradek.timer import ManualClock, SystemTimer
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics
from tests.table_settings import of_table

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
Protocols = Mapping[str, bytes] | Iterable[str]


def subscription(*topics: str) -> bytes:
    """Encodes the subscription of a consumer to these topics."""
    return owning_subscription(topics, {})


def owning_subscription(topics: Iterable[str], owned: Mapping[str, Iterable[int]], rack: str | None = None) -> bytes:
    """Encodes the subscription of a consumer that owns partitions."""
    partitions = [
        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(each)) for topic, each in owned.items()
    ]
    message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=partitions, rack_id=rack)
    return encode_versioned(message, 1 if rack is None else 3)


class SentRequest:
    """A waiting or answered request. A second answer fails the test."""

    def __init__(self) -> None:
        self._response: Any = None

    def answer(self, response: JoinGroupResponse | SyncGroupResponse) -> None:
        assert self._response is None, f"answered twice: {self._response} and {response}"
        self._response = response

    @property
    def is_answered(self) -> bool:
        return self._response is not None

    @property
    def response(self) -> Any:
        assert self._response is not None, "not answered yet"
        return self._response

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)


class GroupLog:
    """The log of the shard's partition. While `is_held`, appends wait for the high watermark, and decisions without
    records for the appends before. `failure` is that of all appends; NOT_ENOUGH_REPLICAS of those with acks.
    """

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.is_held = False
        self.failure: ErrorCode | None = None
        self.waiting: list[Decision] = []

    def act(self, shard: GroupShard, decision: Decision) -> None:
        needs_no_replica = decision.acks == 0 and self.failure is ErrorCode.NOT_ENOUGH_REPLICAS
        if self.failure is not None and decision.records and not needs_no_replica:
            decision.done(AppendFailed(self.failure))
            return
        if decision.records:
            decision.base_offset = len(self.records)
        for record in decision.records:
            offset = len(self.records)
            self.records.append(record)
            if decision.replay:
                shard.replay(record, offset=offset, timestamp_ms=0, producer_id=-1, producer_epoch=-1)
        if self.is_held and (decision.records or self.waiting):
            self.waiting.append(decision)
        else:
            decision.done(None)

    def settle(self, cause: ErrorCode | None = None) -> None:
        """Completes the waiting appends, or fails them with `cause`."""
        waiting, self.waiting = self.waiting, []
        for decision in waiting:
            decision.done(None if cause is None else AppendFailed(cause, is_written=True))


class OneShard:
    """A runtime that has one shard, of the partition of all groups."""

    def __init__(self, log: GroupLog, new_shard: NewShard) -> None:
        shard = cast(GroupShard, new_shard(0, 0, lambda decision: log.act(shard, decision)))
        self._shard = shard

    @property
    def loading(self) -> bool:
        return False

    @property
    def is_stopping(self) -> bool:
        return False

    def partition_for(self, key: str) -> int:
        return 0

    def shard_for(self, key: str) -> GroupShard:
        return self._shard

    def shards(self) -> list[GroupShard]:
        return [self._shard]


def new_group(group_id: str = GROUP) -> ClassicGroup:
    """Returns a group without members, alone in a shard."""
    return GroupHarness().shard.new_classic(group_id)


class GroupHarness:
    """`member_id` of `join` is empty for a new member; `known_ids` False is a client before version 4."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        seed: int = 0,
        tick_ms: int = 1,
        topics: FakeTopics | None = None,
        consumer_settings: ConsumerGroupSettings = SETTINGS,
    ) -> None:
        self.settings = settings or of_table(GroupSettings, initial_rebalance_delay_ms=0)
        self.clock = ManualClock()
        self.random = Random(seed)
        self.timer = SystemTimer(self.clock, tick_ms=tick_ms)
        self.completions = CompletionQueue(lambda _: None)
        self.soon: list[Callable[[], None]] = []
        self.topics = topics or FakeTopics()
        self.consumer_settings = consumer_settings
        self.log = GroupLog()
        self.coordinator = self._new_coordinator()
        self.shard.loaded()

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.settings,
            self._consumer_groups(),
            clock=self.clock,
            timer=self.timer,
            completions=self.completions,
            random=self.random,
            start_runtime=partial(OneShard, self.log),
        )

    @property
    def waits(self) -> GroupWaits:
        return self.coordinator.waits

    @property
    def shard(self) -> GroupShard:
        return self.coordinator.shard_of(GROUP)

    def _consumer_groups(self) -> ConsumerGroups:
        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("classic groups have no work beside the requests")

        return self._consumer_groups_with(refuse, most_bytes=0)

    def _consumer_groups_with(self, work: Work, most_bytes: int) -> ConsumerGroups:
        return ConsumerGroups(
            cast(ClusterTopics, self.topics),
            lambda _: self.consumer_settings,
            work,
            self.soon.append,
            {GROUP_VERSION: 1},
            (CONSUMER,),
            most_bytes,
        )

    def restart(self, records: int | None = None) -> None:
        """Unloads the shard and loads another coordinator's from the log, or from the log's first records."""
        self.shard.unload()
        self.settled()
        self.log.waiting.clear()
        self.coordinator = self._new_coordinator()
        del self.log.records[len(self.log.records) if records is None else records :]
        for offset, record in enumerate(self.log.records):
            self.shard.replay(record, offset=offset, timestamp_ms=0, producer_id=-1, producer_epoch=-1)
        self.shard.loaded()
        self.settled()

    # --- time ---------------------------------------------------------------------------------------------------

    def settled(self) -> None:
        """Runs the deferred calls of the running handler and the due timers."""
        self.timer.advance_clock()
        while self.soon or not self.completions.is_empty:
            self.completions.drain()
            while self.soon:
                self.soon.pop(0)()
            self.timer.advance_clock()

    def advance(self, ms: int) -> None:
        """Advances the clock and stops wherever a timer is due."""
        end_ms = self.clock.now_ms() + ms
        while (due_ms := self.timer.next_expiration_ms) is not None and due_ms <= end_ms:
            self.clock.advance(max(due_ms - self.clock.now_ms(), 0))
            self.settled()
        self.clock.advance(end_ms - self.clock.now_ms())

    # --- requests -----------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance: str | None = None,
        protocols: Protocols = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        known_ids: bool = False,
        can_skip: bool = False,
        client_id: str = "client",
    ) -> SentRequest:
        request = SentRequest()
        metadata = protocols if isinstance(protocols, Mapping) else {name: subscription("t") for name in protocols}
        joining = Joining(
            member_id=member_id,
            group_instance_id=instance,
            client_id=client_id,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            protocol_type=protocol_type,
            protocols=tuple(metadata.items()),
            needs_known_id=known_ids,
            can_skip_assignment=can_skip,
            reason="test",
            answer=request.answer,
        )
        try:
            self.coordinator.join(group_id, joining)
        except ProtocolError as error:
            request.answer(join_refused(error.code, member_id))
        self.settled()
        return request

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> SentRequest:
        request = SentRequest()
        syncing = Syncing(
            generation_id, member_id, instance, protocol_type, protocol_name, assignments or {}, request.answer
        )
        try:
            self.coordinator.sync(GROUP, syncing)
        except ProtocolError as error:
            request.answer(SyncGroupResponse(error_code=error.code))
        self.settled()
        return request

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        try:
            return self.coordinator.heartbeat(GROUP, member_id, instance, generation_id)
        except ProtocolError as error:
            return error.code
        finally:
            self.settled()

    def leave(self, member_id: str = "", instance: str | None = None) -> ErrorCode:
        try:
            group = self.coordinator.consumer_group(GROUP)
            if group is not None:
                return self._leave_together(group, [Leaving(member_id, instance)])[0]
            return self.coordinator.leave(GROUP, member_id, instance, "test")
        except ProtocolError as error:
            return error.code
        finally:
            self.settled()

    def leave_together(self, *leaving: Leaving) -> list[ErrorCode]:
        """Members of a consumer group leave. Returns their errors."""
        group = self.coordinator.consumer_group(GROUP)
        assert group is not None
        errors = self._leave_together(group, leaving)
        self.settled()
        return errors

    def _leave_together(self, group: ConsumerGroup, leaving: Iterable[Leaving]) -> list[ErrorCode]:
        answers: list[Any] = []
        finished(self.coordinator.leave_together(group, leaving, answers.append))
        (answer,) = answers
        if isinstance(answer, ProtocolError):
            raise answer
        return [ErrorCode(row.error_code) for row in answer.members]

    # --- scenarios ----------------------------------------------------------------------------------------------

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> GroupState:
        return self.group.state

    @property
    def waiting(self) -> tuple[int, int]:
        """The numbers of operations that wait for heartbeats and for rebalances."""
        return self.waits.heartbeat.delayed, self.waits.rebalance.delayed

    def stable(self, count: int = 1, **joining: Any) -> list[str]:
        """Makes a Stable group and returns its members, the leader first. Each is assigned its own number."""
        requests = [self.join(**joining) for _ in range(count)]
        self.advance(2 * self.settings.initial_rebalance_delay_ms)
        answered = [each for each in requests if each.is_answered]
        if len(answered) < count:  # the first began a generation of its own
            for each in answered:
                requests[requests.index(each)] = self.join(each.response.member_id, **joining)
        ids = [each.response.member_id for each in requests]
        leader = requests[0].response.leader
        ids.sort(key=lambda member_id: member_id != leader)
        self.sync_all(ids, requests[0].response.generation_id)
        return ids

    def sync_all(self, ids: list[str], generation_id: int) -> list[SentRequest]:
        """All members send their SyncGroup; the leader, which is the first id, sends its request last."""
        assignments = {member_id: b"%d" % number for number, member_id in enumerate(ids)}
        requests = [self.sync(member_id, generation_id) for member_id in ids[1:]]
        return [self.sync(ids[0], generation_id, assignments), *requests]

    def rejoined(self, ids: list[str], **joining: Any) -> list[SentRequest]:
        """All members rejoin."""
        return [self.join(member_id, **joining) for member_id in ids]

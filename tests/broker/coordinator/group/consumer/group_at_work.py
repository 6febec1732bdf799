"""A consumer group without a broker: its log, its topics, its clock, and clients that do what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView
from itertools import chain
from typing import Any
from uuid import UUID

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.assignors.assignor import Target
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat, check_request, heartbeat
from odradek.broker.coordinator.group.consumer.leaving import away, fence
from odradek.broker.coordinator.group.consumer.member import AWAY, JOINING, LEAVING, ConsumerMember, Partitions
from odradek.broker.coordinator.group.consumer.outcome import Outcome, Timer
from odradek.broker.coordinator.group.consumer.regex import resolve_steps, resolved
from odradek.broker.coordinator.group.consumer.replay import ConsumerReplay
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from odradek.broker.coordinator.group.consumer.target import Assignment, due_in_ms
from odradek.broker.coordinator.group.consumer.topic_hash import topic_hash
from odradek.broker.coordinator.group.group import Session
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

GROUP = "g"
REBALANCE_MS = 60_000
SETTINGS = ConsumerGroupSettings(
    assignors=("range", "uniform"),
    session_timeout_ms=45_000,
    heartbeat_interval_ms=5_000,
    assignment_interval_ms=0,
    regex_refresh_interval_ms=600_000,
    max_size=1000,
    migration_policy=MigrationPolicy.BIDIRECTIONAL,
    classic_max_size=1000,
)


class FakeTopics:
    """Topics in memory. The id of the n-th one that is created is n."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self.counts: dict[str, int] = {}
        self.rack = "r"
        self.ids: dict[str, UUID] = {}
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self.version += 1
        self.counts[name] = count
        self.ids[name] = UUID(int=self.version)

    def delete(self, name: str) -> None:
        del self.counts[name], self.ids[name]

    def topic_id(self, name: str) -> UUID | None:
        return self.ids.get(name)

    def name(self, topic_id: UUID) -> str | None:
        return next((name for name, each in self.ids.items() if each == topic_id), None)

    def partition_count(self, topic_id: UUID) -> int | None:
        return self.counts.get(self.name(topic_id) or "")

    def racks(self, topic_id: UUID, partition: int) -> list[str]:
        return [self.rack]

    def hash_of(self, name: str) -> int:
        return topic_hash(self, name)

    def names(self) -> KeysView[str]:
        return self.counts.keys()


class NoTimers:
    """The timers of groups that no clock drives."""

    def resume(self, group: ConsumerGroup) -> None: ...

    def give_up(self, group: ConsumerGroup) -> None: ...

    def step_of(self, group: ConsumerGroup, member_id: str) -> None: ...

    def session_of(self, group: ConsumerGroup, member: ConsumerMember) -> Session:
        return Session(SETTINGS.session_timeout_ms, None)

    def sessions(self, group: ConsumerGroup) -> Iterable[DelayedHeartbeat]:
        return ()


class Table:
    """The groups of a shard, by the records that it replays."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._replay = ConsumerReplay(self._group_of, self._remove)

    def _group_of(self, group_id: str, may_create: bool) -> ConsumerGroup | None:
        if group_id not in self.groups and may_create:
            self.groups[group_id] = ConsumerGroup(group_id, NoTimers())
        return self.groups.get(group_id)

    def _remove(self, group: ConsumerGroup) -> None:
        del self.groups[group.group_id]

    def apply(self, record: CoordinatorRecord) -> None:
        self._replay.replay(record)


class GroupAtWork:
    """`log` has all records. Each request is replayed before the next one. Times in ms."""

    def __init__(self, topics: FakeTopics | None = None, settings: ConsumerGroupSettings = SETTINGS) -> None:
        self.topics = topics or FakeTopics(foo=6, bar=3)
        self.settings = settings
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[tuple[str, str], Timer] = {}
        self.last = Outcome()
        self.is_damaged = False
        """Whether two members may own a partition, because the log is damaged."""
        self._table = Table()
        self._made = 0

    @property
    def group(self) -> ConsumerGroup:
        return self._table.groups.get(GROUP) or ConsumerGroup(GROUP, NoTimers())

    def member(self, member_id: str) -> ConsumerMember:
        member = self.group.member(member_id)
        assert member is not None
        return member

    # --- requests -----------------------------------------------------------------------------------------------

    def join(self, member_id: str, *names: str, **more: Any) -> Any:
        """Joins with the topics; without any, `regex` has the subscription."""
        fields = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}, "topics": names or None, **more}
        return self.beat(member_id, JOINING, **fields)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """Sends a heartbeat and returns the response."""
        request = Heartbeat(GROUP, member_id, epoch, **{"client_id": "client", "client_host": "/127.0.0.1", **fields})
        check_request(request, self.settings.assignors)
        if epoch == AWAY:
            return self.carry_out(away(self.group, request))
        if epoch == LEAVING:
            member = self.group.checked_member(member_id, request.instance_id)
            response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVING)
            outcome = fence(self.group, (member,), self.topics, self.settings)
            return self.carry_out(outcome._replace(response=response))
        return self.carry_out(heartbeat(self.group, request, self.now_ms, self.topics, self.settings, self._new_id))

    def refused(self, send: Callable[..., Any], *args: Any, **fields: Any) -> ErrorCode:
        """Returns the error of a request. It must not leave a trace."""
        records = len(self.log)
        try:
            send(*args, **fields)
        except ProtocolError as error:
            assert len(self.log) == records
            return error.code
        raise AssertionError("it was accepted")

    def leave(self, member_id: str, *, instance: str | None = None, epoch: int = LEAVING) -> Any:
        return self.beat(member_id, epoch, instance_id=instance)

    def fence(self, *member_ids: str) -> None:
        self.carry_out(fence(self.group, [self.member(each) for each in member_ids], self.topics, self.settings))

    def resolve(self, is_visible: Callable[[str], bool] = lambda _: True) -> None:
        """Runs what the last request asked to be resolved."""
        assert self.last.resolve, "nothing to resolve"
        matched = finished(resolve_steps(self.last.resolve, self.topics.names(), is_visible, most_bytes=1 << 20))
        self.group.round_version = self.topics.version
        self.carry_out(resolved(self.group, matched, self.topics.version, self.now_ms, self.topics))
        self.group.has_resolved()

    def assign(self) -> None:
        """Computes the target assignment, as a timer does."""
        assert due_in_ms(self.group, self.group.epoch, self.now_ms, self.settings.assignment_interval_ms) == 0
        assignment = Assignment(self.group, self.group.epoch, self.topics, self.settings.assignors)
        target = finished(assignment.steps())
        self.write(assignment, target)

    def write(self, assignment: Assignment, target: Target) -> None:
        """Writes a target that was computed in steps, all of it in one batch."""
        self.carry_out(Outcome(list(chain(*assignment.batches(self.group, target, self.now_ms, most_bytes=1 << 20)))))

    def carry_out(self, outcome: Outcome) -> Any:
        self.last = outcome
        for record in outcome.records:
            self.log.append(record)
            self._table.apply(record)
        for timer in outcome.timers:
            key = timer.kind, timer.member_id
            if timer.after_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = timer
        if outcome.refresh_at_ms is not None:
            self.group.refresh_at_ms = outcome.refresh_at_ms
        if not self.is_damaged:
            self.group.check()
        return outcome.response

    def _new_id(self) -> str:
        self._made += 1
        return f"made-{self._made}"

    # --- what came of it ----------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self.group.state_name

    @property
    def kinds(self) -> list[int]:
        """The types of the records of the last request; negative for tombstones."""
        return [record.kind if record.value is not None else -record.kind for record in self.last.records]

    def restarted(self, records: int | None = None) -> GroupAtWork:
        """Returns the group as another coordinator loads it from the log, or from the first records of it."""
        other = GroupAtWork(self.topics, self.settings)
        other.now_ms = self.now_ms
        for record in self.log[:records]:
            other._table.apply(record)
        other.log = self.log[:records]
        return other


def assigned(response: Any) -> dict[int, set[int]] | None:
    """Returns the partitions in a response by the number of their topic; None if it has no assignment."""
    if response.assignment is None:
        return None
    return {each.topic_id.int: set(each.partitions) for each in response.assignment.topic_partitions}


def owned(response: Any) -> Partitions:
    """Returns what a client owns that was told this assignment."""
    return {each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions}

"""GroupCoordinator: all groups whose partition of `__consumer_offsets` this broker leads.

Each request is delegated to the group's shard. Requests raise ProtocolError: INVALID_GROUP_ID, the errors of
`Membership` and of heartbeats, and the runtime's errors for partitions led by another broker (NOT_COORDINATOR) or
still loading.

Source: Kafka's GroupCoordinator (validateGroupStatus), GroupMetadataManager (metrics).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from random import Random
from typing import NamedTuple, cast

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.background.tasks import Soon
from odradek.broker.cluster.deltas import TopicNews
from odradek.broker.coordinator.group.admin import GroupOverview, count_by_state, delete_group, overviews
from odradek.broker.coordinator.group.classic.rebalance import GroupWaits
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.cluster_topics import ClusterTopics
from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.group import CONSUMER, ConsumerGroup
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat, check_request
from odradek.broker.coordinator.group.consumer.member import JOINING, LEAVING
from odradek.broker.coordinator.group.consumer.metadata_hash import AT_ONCE
from odradek.broker.coordinator.group.consumer.requests import (
    Answer,
    ConsumerEnvironment,
    ConsumerGroupMetrics,
    IsVisible,
    Work,
)
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.member_requests import JoinAnswer, Joining, Syncing
from odradek.broker.coordinator.group.offsets.removal import expire_offsets, remove_offsets_of_topic
from odradek.broker.coordinator.group.shard import GroupEnvironment, GroupShard
from odradek.broker.coordinator.runtime.shard import Act, StartRuntime
from odradek.broker.features.features import GROUP_VERSION
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse
from odradek.protocol.schema import Message
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.timer import Clock, SystemTimer

FIRST_GROUP_VERSION = 1
"""The level of the feature group.version from which consumer groups are served."""


class OffsetMetrics:
    """Counts offsets (not requests) committed, expired and deleted since the broker started. (Kafka's
    group-coordinator-metrics)
    """

    __slots__ = ("commits", "deletions", "expirations")

    def __init__(self) -> None:
        self.commits = 0
        self.deletions = 0
        self.expirations = 0


class ConsumerGroups(NamedTuple):
    """What the coordinator needs for consumer groups. `levels`: of the features, see `FinalizedFeatures`; `protocols`
    are those that the setting enables; `most_bytes`: see `ConsumerEnvironment`.
    """

    topics: ClusterTopics
    settings_of: Callable[[str], ConsumerGroupSettings]
    work: Work
    soon: Soon
    levels: Mapping[str, int]
    protocols: Collection[str]
    most_bytes: int


class GroupCoordinator:
    """`start_runtime(new_shard)` starts the runtime that loads and writes the shards."""

    def __init__(
        self,
        settings: GroupSettings,
        consumer_groups: ConsumerGroups,
        *,
        clock: Clock,
        timer: SystemTimer,
        completions: CompletionQueue,
        random: Random,
        start_runtime: StartRuntime,
    ) -> None:
        self.settings = settings
        self.waits = GroupWaits(
            DelayedOperationPurgatory("Heartbeat", timer, clock, completions),
            DelayedOperationPurgatory("Rebalance", timer, clock, completions),
        )
        self.offset_metrics = OffsetMetrics()
        self.consumer_metrics = ConsumerGroupMetrics()
        self.completed_rebalances = 0
        """Of classic groups, since the broker started."""
        self._clock = clock
        self._consumer_groups = consumer_groups
        self._topics = consumer_groups.topics
        of_consumers = ConsumerEnvironment(
            self._topics,
            consumer_groups.settings_of,
            consumer_groups.work,
            consumer_groups.soon,
            consumer_groups.most_bytes,
            self.consumer_metrics,
        )
        self._environment = GroupEnvironment(settings, self.waits, clock, random, self._rebalanced, of_consumers)
        self.runtime = start_runtime(self._new_shard)

    def _new_shard(self, partition: int, _leader_epoch: int, act: Act) -> GroupShard:
        return GroupShard(partition, act, self._environment)

    def _rebalanced(self) -> None:
        self.completed_rebalances += 1

    def stop(self) -> None:
        """Shuts down the purgatories. Call after the runtime has stopped."""
        self.waits.rebalance.shutdown()
        self.waits.heartbeat.shutdown()

    # --- requests of classic members, by the kind of their group ------------------------------------------------

    def shard_of(self, group_id: str) -> GroupShard:
        """Returns the group's shard, in which no member is about to go any more.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = cast(GroupShard, self.runtime.shard_for(group_id))
        departures = shard.consumers.departures
        if departures.going:
            departures.carry_out()
        return shard

    def join(self, group_id: str, joining: Joining) -> None:
        """See `Joins.join` and `ConsumerRequests.join`. Raises their errors, and INVALID_SESSION_TIMEOUT."""
        shard, settings = self._shard_of_named(group_id), self.settings
        if not settings.min_session_timeout_ms <= joining.session_timeout_ms <= settings.max_session_timeout_ms:
            raise ProtocolError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            shard.consumers.join(group, joining)
        else:
            shard.joins.join(group_id, joining)

    def join_abandoned(self, group_id: str, answer: JoinAnswer) -> None:
        """See `Joins.abandoned`; in a consumer group no JoinGroup is parked. Does nothing if this broker no longer
        coordinates the group.
        """
        try:
            shard = self.shard_of(group_id)
        except ProtocolError:
            return
        shard.joins.abandoned(group_id, answer)

    def sync(self, group_id: str, syncing: Syncing) -> None:
        """See `Membership.sync` and `ConsumerRequests.sync`. Raises REBALANCE_IN_PROGRESS while the group loads: the
        rebalance is lost, and old clients do not handle COORDINATOR_LOAD_IN_PROGRESS here.
        """
        try:
            shard = self._shard_of_named(group_id)
        except ProtocolError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS) from None
            raise
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            shard.consumers.sync(group, syncing)
        else:
            shard.membership.sync(group_id, syncing)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """See `Membership.heartbeat` and `ConsumerRequests.stay`. Returns NONE while the group loads, because loading
        restarts the members' sessions.
        """
        try:
            shard = self._shard_of_named(group_id)
        except ProtocolError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            raise
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return shard.consumers.stay(group, member_id, group_instance_id, generation_id)
        return shard.membership.heartbeat(group_id, member_id, group_instance_id, generation_id)

    def leave(self, group_id: str, member_id: str, group_instance_id: str | None, reason: str) -> ErrorCode:
        """See `Membership.leave`; members of consumer groups leave together. Returns the member's error code; raises
        errors that concern the whole group.
        """
        membership = self._shard_of_named(group_id).membership
        try:
            membership.leave(group_id, member_id, group_instance_id, reason)
        except ProtocolError as error:
            return error.code
        return ErrorCode.NONE

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Returns the consumer group; None if there is none of this id, or one of another kind. Raises as `leave`."""
        group = self._shard_of_named(group_id).groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def leave_together(self, group: ConsumerGroup, leaving: Iterable[Leaving], answer: Answer) -> Steps[None]:
        """See `ConsumerRequests.leave`."""
        yield from self.shard_of(group.group_id).consumers.leave(group, leaving, answer)

    # --- consumer groups ----------------------------------------------------------------------------------------

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether members of the newer protocol are served. Their groups are loaded anyway."""
        groups = self._consumer_groups
        return CONSUMER in groups.protocols and groups.levels.get(GROUP_VERSION, 0) >= FIRST_GROUP_VERSION

    @property
    def stores_topic_ids(self) -> bool:
        """Whether commits are written with the ids of their topics."""
        return self._consumer_groups.levels.get(GROUP_VERSION, 0) >= FIRST_GROUP_VERSION

    def repeated_heartbeat(self, request: Heartbeat) -> Message | None:
        """See `ConsumerRequests.repeated`."""
        if request.epoch <= JOINING:
            return None
        try:
            return self.shard_of(request.group_id).consumers.repeated(request)
        except ProtocolError:
            return None

    def consumer_heartbeat(self, request: Heartbeat, is_visible: IsVisible, answer: Answer) -> None:
        """See `ConsumerRequests.heartbeat`. Raises its errors, and those of `check_request` and `shard_of`."""
        check_request(request, self._consumer_groups.settings_of(request.group_id).assignors)
        if request.epoch == LEAVING:
            shard = cast(GroupShard, self.runtime.shard_for(request.group_id))
        else:
            shard = self.shard_of(request.group_id)
        shard.consumers.heartbeat(request, is_visible, answer)

    def describe_consumer_group(self, group_id: str) -> Steps[ConsumerGroupDescribeResponse.DescribedGroup]:
        """Raises GROUP_ID_NOT_FOUND also for a group of another kind, and as `_shard_of_named` does."""
        from odradek.broker.coordinator.group.consumer.description import described_steps

        group = self._shard_of_named(group_id).groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            problem = "not found" if group is None else "is not a consumer group"
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
        return described_steps(group, self._topics, self._consumer_groups.settings_of(group_id).assignors)

    def _shard_of_named(self, group_id: str) -> GroupShard:
        """Returns the group's shard. Raises INVALID_GROUP_ID for an empty id, which is valid only for offsets."""
        if not group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        return self.shard_of(group_id)

    # --- requests of administrators -----------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """Returns the group, or None if it does not exist. Raises as `shard_of` does."""
        return self.shard_of(group_id).groups.get(group_id)

    def list_groups(
        self, states: Collection[str | None] = (), types: Collection[str | None] = ()
    ) -> list[GroupOverview]:
        """Returns the groups in any of `states` and of any of `types`; see `overviews`.

        Raises COORDINATOR_NOT_AVAILABLE. Groups in partitions that are still loading are missing; see `is_loading`.
        """
        if self.runtime.is_stopping:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return overviews(self._groups(), set(states), set(types))

    @property
    def is_loading(self) -> bool:
        """Whether any partition is loading, so that groups may be missing from `list_groups`."""
        return self.runtime.loading

    def delete(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        """Deletes an empty group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or as `shard_of` does."""
        delete_group(self.shard_of(group_id), group_id, done)

    # --- removing offsets ---------------------------------------------------------------------------------------

    def topic_changed(self, topic: str, news: TopicNews) -> Iterator[None]:
        """See TopicListener. Consumer groups that are subscribed to the topic look at it again. The offsets of a
        deleted topic are removed from all groups. Those of a topic that was deleted while this broker was away stay:
        who coordinated the groups then knew.
        """
        self._topics.has_changed(topic, is_new=news is TopicNews.CREATED)
        pace = Pace()
        for group in self._groups():
            if isinstance(group, ConsumerGroup) and topic in group.subscriptions:
                group.refresh_at_ms = AT_ONCE
            if pace.step_ends():
                yield
        if news is TopicNews.DELETED:
            yield from remove_offsets_of_topic(self.shards(), topic)

    def brokers_changed(self) -> None:
        """See ClusterListener. If the brokers' racks are others, all consumer groups look at their topics again."""
        if self._topics.racks_have_changed():
            for group in self._groups():
                if isinstance(group, ConsumerGroup):
                    group.refresh_at_ms = AT_ONCE

    def expire_offsets(self, retention_ms: int) -> Iterator[None]:
        """Removes expired offsets and unused groups without offsets, one group per step."""
        for expired in expire_offsets(self.shards(), self._clock.wall_ms(), retention_ms):
            self.offset_metrics.expirations += expired
            yield

    # --- metrics ------------------------------------------------------------------------------------------------

    def shards(self) -> list[GroupShard]:
        """Returns the loaded shards."""
        return cast(list[GroupShard], list(self.runtime.shards()))

    def groups_by_state(self) -> Counter[tuple[str, str]]:
        """Returns the number of groups by type and state."""
        return count_by_state(self._groups())

    @property
    def offset_count(self) -> int:
        """The number of committed offsets in all groups."""
        return sum(shard.offsets.count for shard in self.shards())

    def _groups(self) -> Iterator[Group]:
        for shard in self.shards():
            yield from list(shard.groups.values())

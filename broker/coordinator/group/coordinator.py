"""GroupCoordinator: all groups whose partition of `__consumer_offsets` this broker leads.

It finds the shard of a group and asks it. Requests raise ProtocolError: INVALID_GROUP_ID, what the group's membership
says, and what the runtime says of partitions that are elsewhere (NOT_COORDINATOR) or loading.

Source: Kafka's GroupCoordinator (validateGroupStatus), GroupMetadataManager (metrics).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import NamedTuple, cast

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.join import Joining
from odradek.broker.coordinator.group.member import JoinAnswer
from odradek.broker.coordinator.group.membership import GroupWaits, Membership, Syncing
from odradek.broker.coordinator.group.offset_metrics import OffsetMetrics
from odradek.broker.coordinator.group.offset_removal import expire_offsets, remove_offsets_of_topic
from odradek.broker.coordinator.group.offsets import GroupOffsets
from odradek.broker.coordinator.group.settings import GroupSettings
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.group.state import GroupState
from odradek.broker.coordinator.shard import Decision, StartRuntime
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.timer import Clock, SystemTimer

CLASSIC = "classic"
"""The type of these groups. (KIP-848)"""


class GroupOverview(NamedTuple):
    """A row of ListGroups."""

    group_id: str
    protocol_type: str
    state: GroupState


class GroupCoordinator:
    """`start_runtime(new_shard)` gives the runtime that loads and writes the shards."""

    def __init__(
        self,
        settings: GroupSettings,
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
        self.completed_rebalances = 0
        """Since the broker started."""
        self._clock = clock
        self._random = random
        self.runtime = start_runtime(self._new_shard)

    def _new_shard(self, partition: int, _leader_epoch: int) -> GroupShard:
        return GroupShard(
            partition,
            clock=self._clock,
            act=self._act,
            membership=self._membership,
            offsets=_new_offsets,
        )

    def _membership(self, groups: dict[str, Group], act: Callable[[Decision], object]) -> Membership:
        return Membership(groups, self.waits, self.settings, act, self._clock, self._random, self._rebalanced)

    def _rebalanced(self) -> None:
        self.completed_rebalances += 1

    def _act(self, shard: GroupShard, decision: Decision) -> None:
        self.runtime.act(shard, decision)

    def stop(self) -> None:
        """After the runtime: nothing waits any more."""
        self.waits.rebalance.shutdown()
        self.waits.heartbeat.shutdown()

    # --- what members ask ---------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> GroupShard:
        """Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        return cast(GroupShard, self.runtime.shard_for(group_id))

    def join(self, group_id: str, joining: Joining) -> None:
        self._shard_of_named(group_id).membership.join(group_id, joining)

    def join_abandoned(self, group_id: str, answer: JoinAnswer) -> None:
        """See Membership; no effect where the group is no longer here."""
        try:
            shard = self.shard_of(group_id)
        except ProtocolError:
            return
        shard.membership.join_abandoned(group_id, answer)

    def sync(self, group_id: str, syncing: Syncing) -> None:
        """REBALANCE_IN_PROGRESS while the group loads: the rebalance is lost, and older clients know no better."""
        try:
            shard = self._shard_of_named(group_id)
        except ProtocolError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS) from None
            raise
        shard.membership.sync(group_id, syncing)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """NONE while the group loads: its members' sessions begin anew then."""
        try:
            shard = self._shard_of_named(group_id)
        except ProtocolError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            raise
        return shard.membership.heartbeat(group_id, member_id, group_instance_id, generation_id)

    def check_reached(self, group_id: str) -> None:
        """Raises INVALID_GROUP_ID, and as `shard_of`, where a member would not even be looked for."""
        self._shard_of_named(group_id)

    def leave(self, group_id: str, member_id: str, group_instance_id: str | None, reason: str) -> ErrorCode:
        """Whether the member has left. Raises what is wrong with the whole group."""
        membership = self._shard_of_named(group_id).membership
        try:
            membership.leave(group_id, member_id, group_instance_id, reason)
        except ProtocolError as error:
            return error.code
        return ErrorCode.NONE

    def _shard_of_named(self, group_id: str) -> GroupShard:
        """Who only stores offsets may do so for a group without a name; members need one."""
        if not group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        return self.shard_of(group_id)

    # --- what administrators ask --------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """None for one that does not exist. Raises as `shard_of`."""
        return self.shard_of(group_id).group(group_id)

    def list_groups(self, states: Collection[GroupState | None] = ()) -> list[GroupOverview]:
        """The groups in one of these states; all of them where none is named. None: one that no group is ever in.

        Raises COORDINATOR_NOT_AVAILABLE. What `is_loading` leaves out comes later.
        """
        if self.runtime.is_stopping:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        wanted = set(states)
        return [
            GroupOverview(group.group_id, group.protocol_type or "", group.state)
            for group in self._groups()
            if not wanted or group.state in wanted
        ]

    @property
    def is_loading(self) -> bool:
        """Whether there may be groups that nobody can see yet."""
        return self.runtime.loading

    def delete(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        """Deletes an Empty group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and as `shard_of`."""
        self.shard_of(group_id).delete(group_id, done)

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker stands in a partition of `__consumer_offsets`."""
        self.runtime.transaction_ended(partition, producer_id, producer_epoch, committed)

    # --- offsets that go ----------------------------------------------------------------------------------------

    def topic_deleted(self, topic: str) -> Iterator[None]:
        """In steps: in the end no group has offsets of it any more. Until then there must be no topic of that name."""
        return remove_offsets_of_topic(self.shards(), topic)

    def expire_offsets(self, retention_ms: int) -> Iterator[None]:
        """Looks at one group per step: offsets whose time is over go, and Empty groups without any."""
        for expired in expire_offsets(self.shards(), self._clock.wall_ms(), retention_ms):
            self.offset_metrics.expirations += expired
            yield

    # --- metrics ------------------------------------------------------------------------------------------------

    def shards(self) -> list[GroupShard]:
        """Those that are loaded."""
        return cast(list[GroupShard], list(self.runtime.shards()))

    def groups_by_state(self) -> Counter[GroupState]:
        return Counter(group.state for group in self._groups())

    @property
    def offset_count(self) -> int:
        """How many offsets are committed in all groups."""
        return sum(shard.offsets.count for shard in self.shards())

    def _groups(self) -> Iterator[Group]:
        for shard in self.shards():
            yield from list(shard.groups.values())


def _new_offsets(_shard: GroupShard) -> GroupOffsets:
    return GroupOffsets()

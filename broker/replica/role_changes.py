"""Changes of this broker's role in partitions: leader, follower, or none. Many partitions change together.

`change` first stops fetching for all partitions that get another epoch, so that no record of an earlier leader is
appended later. It creates the missing logs together (log_creations.py), makes this broker leader or follower, and
starts to fetch from the new leaders. `stop` ends serving, and with `delete` removes the logs.

(A) A change with an older leader epoch than the partition has is refused with STALE_CONTROLLER_EPOCH. One with the same
    epoch is a repetition, by a new controller say: followers go on fetching. A broker that is not among the replicas
    refuses with UNKNOWN_TOPIC_OR_PARTITION.
(B) A partition whose log cannot be opened is offline: KAFKA_STORAGE_ERROR (cluster/offline_replicas.py). So is one
    whose disk fails during the change: a role that was decided before does not bring it back.
(C) A role in another topic than that of the partition with the same name is refused with INCONSISTENT_TOPIC_ID, and
    changes nothing. But a request with all roles of this broker ends those of topics that were deleted while it was
    away. A log that is left of such a topic is moved aside (`-stray`).
(D) The failure of one partition does not hold up the others. A replica whose folder stays is not deleted:
    KAFKA_STORAGE_ERROR.
(E) `lapse` ends all leaderships, because other brokers may have been elected unnoticed. Each partition is led again
    when a role says so. Roles that were decided before are refused with STALE_BROKER_EPOCH.

Calls must not overlap; `cluster/changes.py` has the queue. Source: Kafka's `ReplicaManager.becomeLeaderOrFollower`,
`makeLeaders`, `makeFollowers`, `stopReplicas`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.broker.replica.follower.fetcher_manager import FetcherManager
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_creation import NewLog

if TYPE_CHECKING:
    from odradek.broker.replica.follower.fetcher_state import FetchFrom
    from odradek.broker.replica.replica_manager import ReplicaManager
    from odradek.storage.log_config import LogConfig

PARTITIONS_PER_TURN = 4
"""The number of partitions changed before yielding to the event loop."""

log = structlog.get_logger("broker.replica")

Errors = dict[TopicPartition, ErrorCode]


class Role(NamedTuple):
    """What the controller has decided about one partition (`state`), and the settings of its log. `is_new`: this broker
    did not have the replica before.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    state: PartitionState
    log_config: LogConfig
    is_new: bool


class Stop(NamedTuple):
    """Ends this broker's role in a partition; with `delete`, removes its log. Not if the partition has a newer
    `leader_epoch` (None: in any case).
    """

    topic_partition: TopicPartition
    leader_epoch: int | None
    delete: bool


class RoleChanges:
    """The changes of the replica manager's partitions."""

    def __init__(self, manager: ReplicaManager, fetchers: FetcherManager) -> None:
        self._manager = manager
        self._fetchers = fetchers
        self.lapses = 0
        """How often all leaderships have lapsed (E)."""

    def lapse(self) -> None:
        """Refuses to lead any partition until it has a new role (E). May be called at any time."""
        self.lapses += 1
        self._manager.lapse_leaderships()

    async def change(self, roles: Sequence[Role], lapses: int) -> Errors:
        """Makes this broker leader or follower of partitions. Returns the outcome of each, in order. `lapses` is the
        number of those that had been when the roles were accepted (E).
        """
        manager = self._manager
        errors = {role.topic_partition: self._refusal(role) async for role in others_between(roles)}
        changed = [role for role in roles if errors[role.topic_partition] is ErrorCode.NONE]
        renewed = [role.topic_partition async for role in others_between(changed) if self._is_new_epoch(role)]
        await self._fetchers.remove(renewed)
        await self._set_predecessors_aside(changed)
        failures = await manager.make_logs(
            NewLog(role.topic_partition, role.topic_id, role.state.leader_epoch, role.log_config, role.is_new)
            for role in changed
        )
        for number, role in enumerate(changed, 1):
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            failure = failures.get(role.topic_partition)
            if failure is not None:
                errors[role.topic_partition] = failure.code
            elif role.topic_partition in manager.partitions.offline:
                errors[role.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif lapses != self.lapses:
                errors[role.topic_partition] = ErrorCode.STALE_BROKER_EPOCH
            else:
                self._take(role)
        taken = [role for role in changed if errors[role.topic_partition] is ErrorCode.NONE]
        await self._fetchers.add(self._sources(taken))
        return errors

    async def _set_predecessors_aside(self, roles: Iterable[Role]) -> None:
        were_moved = False
        async for role in others_between(roles):
            try:
                were_moved |= self._manager.set_aside_predecessor(role.topic_partition, role.topic_id)
            except ProtocolError as error:  # creating the log fails, too
                log.error("stray log not moved", partition=str(role.topic_partition), reason=str(error))
        if were_moved:
            await self._manager.sync_log_dirs()

    def _refusal(self, role: Role) -> ErrorCode:
        """Returns why a role is refused (A, B), or NONE."""
        manager, key = self._manager, role.topic_partition
        if key in manager.partitions.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if manager.settings.broker_id not in role.state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = manager.partitions.get(key)
        if partition is None:
            return ErrorCode.NONE
        if partition.topic_id != role.topic_id and partition.topic_id.int and role.topic_id.int:
            log.error("role refused", partition=str(key), topic_id=str(role.topic_id), known_id=str(partition.topic_id))
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if role.state.leader_epoch >= partition.leader_epoch:
            return ErrorCode.NONE
        log.info(
            "role refused",
            partition=str(key),
            leader_epoch=role.state.leader_epoch,
            known_epoch=partition.leader_epoch,
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _is_new_epoch(self, role: Role) -> bool:
        partition = self._manager.partitions.get(role.topic_partition)
        return partition is not None and role.state.leader_epoch > partition.leader_epoch

    def _take(self, role: Role) -> None:
        manager = self._manager
        is_leader = role.state.leader == manager.settings.broker_id
        become = manager.become_leader if is_leader else manager.become_follower
        become(role.topic_partition, role.topic_id, role.state, role.log_config)

    def _sources(self, roles: Iterable[Role]) -> Mapping[TopicPartition, FetchFrom]:
        from odradek.broker.replica.follower.fetcher_state import FetchFrom

        return {
            role.topic_partition: FetchFrom(role.state.leader, role.state.leader_epoch, role.topic_id)
            for role in roles
            if role.state.leader not in (NO_LEADER, self._manager.settings.broker_id)
        }

    async def stop(self, stops: Sequence[Stop]) -> Errors:
        """Ends this broker's role in partitions. Returns the outcome of each, in order."""
        manager = self._manager
        errors: Errors = {}
        for stop in stops:
            partition = manager.partitions.get(stop.topic_partition)
            is_late = partition is not None and stop.leader_epoch is not None
            if is_late and stop.leader_epoch < partition.leader_epoch:  # type: ignore[operator, union-attr]
                errors[stop.topic_partition] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                errors[stop.topic_partition] = ErrorCode.NONE
        stopped = [stop for stop in stops if errors[stop.topic_partition] is ErrorCode.NONE]
        await self._fetchers.remove([stop.topic_partition for stop in stopped])
        for number, stop in enumerate(stopped):
            try:
                manager.stop_replica(stop.topic_partition, stop.delete)
            except (OSError, ProtocolError) as error:
                log.error("partition not stopped", partition=str(stop.topic_partition), reason=str(error))
                errors[stop.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        await manager.sync_log_dirs()
        return errors

    async def stop_others(self, roles: Iterable[Role]) -> None:
        """Stops all replicas but those with a role, also those of earlier topics with the same names: this broker was
        away when they were deleted. Their logs stay.
        """
        topic_ids = {role.topic_partition: role.topic_id for role in roles}
        hosted = [(partition.topic_partition, partition.topic_id) for partition in self._manager.partitions]
        await self.stop([Stop(key, None, delete=False) for key, topic_id in hosted if topic_ids.get(key) != topic_id])

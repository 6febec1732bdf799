"""Elections and reassignments, from the request to the running partitions; `reassignment.py` decides.

A partition's new state is stored (the assignment in the topic's entry, leader and in-sync replicas in the partition's
own entry), carried out on this broker, and then visible in the cache. Partitions are changed one at a time: a failure
does not hold up the others, and other changes can run in between. A reassignment whose target is in sync is completed
in the same step, which on a single node is always the case. Otherwise it stays in the topic's entry, and `resume`
continues it when a controller starts.

Reassignments may also be requested in `/admin/reassign_partitions`, where Kafka's tools put them before KIP-455. They
are read at the start, and the entry is deleted when the last of them is complete or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller import reassignment, znodes
from odradek.broker.controller.local_partitions import LocalPartitions, storage_error
from odradek.broker.controller.metadata_store import Delete, MetadataStore, MetadataStoreError, Operation, Set
from odradek.broker.controller.reassignment import ElectionType
from odradek.broker.metadata.metadata_cache import MetadataCache, PartitionState, TopicMetadata
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

Outcomes = dict[TopicPartition, ProtocolError | None]
Decision = Callable[[PartitionState], PartitionState]

COST = 3
"""The cost of a partition that does not change, in items of a step."""

log = structlog.get_logger("controller")


class ReplicaChanges:
    """`changing` is the controller's lock, which serializes changes; `deleting` contains the topics being deleted."""

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        local: LocalPartitions,
        changing: asyncio.Lock,
        deleting: Collection[str],
    ) -> None:
        self._store = store
        self._cache = cache
        self._local = local
        self._changing = changing
        self._deleting = deleting

    async def elect(self, election: ElectionType, partitions: Collection[TopicPartition]) -> Outcomes:
        """Elects leaders. Returns, per partition, None if it has a new leader, otherwise ELECTION_NOT_NEEDED,
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, INVALID_TOPIC_EXCEPTION (being deleted),
        UNKNOWN_TOPIC_OR_PARTITION.
        """

        def decide(state: PartitionState) -> PartitionState:
            return reassignment.elected(state, election, self._cache.brokers, self._cache.controller_epoch)

        outcomes: Outcomes = {}
        async for key in others_between(partitions, COST):
            async with self._changing:
                if key.topic in self._deleting:
                    outcomes[key] = ProtocolError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{key.topic}' is being deleted"
                    )
                else:
                    outcomes[key] = await self._change(key, decide, f"{election.name.lower()} election")
        return outcomes

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Starts or cancels reassignments. Returns, per partition, None if the reassignment has started (or is
        complete), otherwise INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS (a target of None cancels),
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        outcomes: Outcomes = {}
        async for key, target in others_between(targets.items(), COST):
            async with self._changing:
                outcomes[key] = await self._reassign(key, target)
        return outcomes

    async def resume(self) -> None:
        """Runs when the controller starts: starts the reassignments that tools requested meanwhile, and continues those
        in progress.
        """
        await self._start_requested()
        for key, state in self.in_progress(None).items():
            await self._reassign(key, reassignment.target_of(state))

    async def _start_requested(self) -> None:
        entry = await self._store.exists(znodes.REASSIGN_PARTITIONS)
        if entry is None:
            return
        left = {}
        for key, target in znodes.parse_reassignments(entry.data).items():
            refusal = await self._reassign(key, target)
            state = self._cache.partition(*key)
            if refusal is not None:
                log.warning("reassignment refused", partition=str(key), reason=str(refusal))
            elif state is not None and reassignment.is_being_reassigned(state):
                left[key] = target
        if left:
            await self._store.set(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(left))
        else:
            await self._store.multi([Delete(znodes.REASSIGN_PARTITIONS)])

    def in_progress(self, wanted: Collection[TopicPartition] | None) -> dict[TopicPartition, PartitionState]:
        """The partitions being reassigned, restricted to `wanted` unless it is None."""
        found = {}
        for name in self._cache.topic_names():
            topic = self._cache.topic(name)
            for state in () if topic is None else topic.partitions.values():
                key = TopicPartition(name, state.partition)
                if reassignment.is_being_reassigned(state) and (wanted is None or key in wanted):
                    found[key] = state
        return found

    async def _reassign(self, key: TopicPartition, target: Sequence[int] | None) -> ProtocolError | None:
        """An invalid target is reported before a partition that does not exist."""
        epoch, live = self._cache.controller_epoch, self._cache.brokers
        if target is None and self._cache.partition(*key) is None:
            return ProtocolError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)

        def decide(state: PartitionState) -> PartitionState:
            if target is None:
                state = reassignment.cancelled(state, epoch)
            else:
                state = reassignment.begun(state, target, epoch)
            return reassignment.completed(state, live) if reassignment.is_complete(state) else state

        try:
            if target is not None:
                reassignment.check_target(target, live)
        except ProtocolError as refusal:
            return refusal
        return await self._change(key, decide, "reassignment")

    async def _change(self, key: TopicPartition, decide: Decision, reason: str) -> ProtocolError | None:
        topic, before = self._cache.topic(key.topic), self._cache.partition(*key)
        if topic is None or before is None:
            return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {key}")
        try:
            after = decide(before)
        except ProtocolError as refusal:
            return refusal
        try:
            after = await self._store_state(topic, before, after)
        except MetadataStoreError as error:
            return storage_error(error)
        return await self._carry_out(key, before, after, reason)

    async def _store_state(self, topic: TopicMetadata, before: PartitionState, after: PartitionState) -> PartitionState:
        path = znodes.state_path(topic.name, after.partition)
        operations: list[Operation] = [Set(path, znodes.encode_state(after), before.partition_epoch)]
        if (after.replicas, after.adding, after.removing) != (before.replicas, before.adding, before.removing):
            states = {**topic.partitions, after.partition: after}.values()
            operations.append(Set(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, states)))
        results = await self._store.multi(operations)
        version = results[0]
        assert isinstance(version, int), "the result of a Set"
        return after._replace(partition_epoch=version)

    async def _carry_out(
        self, key: TopicPartition, before: PartitionState, after: PartitionState, reason: str
    ) -> ProtocolError | None:
        topic = self._cache.topic(key.topic)
        assert topic is not None, "the controller's lock excludes other changes"
        self._cache.put_partition(key.topic, after)
        broker_id = self._cache.broker_id
        failures = await self._local.open(
            topic._replace(partitions={key.partition: after}), self._cache.topic_config(key.topic)
        )
        if broker_id in before.replicas and broker_id not in after.replicas:
            await self._local.remove(key.topic, [key.partition])
        log.info(
            "partition changed",
            partition=str(key),
            reason=reason,
            leader=after.leader,
            leader_epoch=after.leader_epoch,
            replicas=after.replicas,
            adding=after.adding,
            removing=after.removing,
        )
        return failures.get(key.partition)

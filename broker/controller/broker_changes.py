"""Brokers that start, stop, move, or lose log directories; and the leaders that must change because of it.

    (A) The registrations under `/brokers/ids` are read as a whole after each change of them. A broker with a new epoch
        has died and started again: it may have lost records, so its leaderships move to other replicas in sync first,
        and it leaves the in-sync replicas. This comes before the loss of brokers that are dead: if only they were in
        sync besides, they stay so, because they may come back with all records. A new controller finds brokers that
        have restarted while there was no controller (`have_restarted`).
    (B) A broker that starts gets everything (`control_requests.py`, C); the others get its address.
    (C) `settle` compares all partitions with the brokers that are alive, and changes those that must change: replicas
        that are lost leave the in-sync replicas, and partitions without leader get one. It does not matter what has
        happened, nor whether an earlier attempt has failed in the middle.
    (D) A broker announces a failed log directory with an entry under `/log_dir_event_notification`. It is then sent its
        replicas again, and reports those that it has lost: KAFKA_STORAGE_ERROR in the response to LeaderAndIsr. It
        does the same when they can be used again.
    (E) A broker that shuts down asks for it: its leaderships move to others, and its replicas leave the in-sync ones.
    (F) A broker that does not support a finalized feature is treated as one that is not there, until it does or the
        feature is lowered.

Source: Kafka's `KafkaController` (`processBrokerChange`, `onBrokerStartup`, `onBrokerFailure`,
`processLogDirEventNotification`, `processLeaderAndIsrResponseReceived`, `doControlledShutdown`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller.control_channels import ControlChannels
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.feature_updates import FeatureUpdates
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_changes import Outcome, PartitionChanges
from odradek.broker.controller.partition_states import (
    PartitionPhase,
    after_losses,
    after_restarts,
    first_state,
    is_new,
    needs_unclean_election,
    shutdown_election,
    without_replica,
)
from odradek.broker.controller.reassignments import Reassignments
from odradek.broker.controller.topic_deletions import TopicDeletions
from odradek.broker.controller.watches import Watches
from odradek.broker.metadata.metadata_cache import BrokerInfo, PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Delete, MetadataStoreError, StoreDamaged
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

UNCLEAN = "unclean.leader.election.enable"

COST = 5
"""The cost of sending the state of a partition, with a line of the log, in items of a step."""

log = structlog.get_logger("controller")


class BrokerChanges:
    """Reacts to the brokers' comings and goings. `on_change` is called when the registrations have changed, and
    `try_later` calls `settle` again after a while.
    """

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        config: BrokerConfig,
        features: FeatureUpdates,
        changes: PartitionChanges,
        requests: ControlRequests,
        channels: ControlChannels,
        deletions: TopicDeletions,
        reassignments: Reassignments,
        *,
        on_change: Callable[[], object],
        try_later: Callable[[], object],
    ) -> None:
        self._store = store
        self._context = context
        self._config = config
        self._features = features
        self._left_out: dict[int, int] = {}
        """The epochs of brokers that are not usable."""
        self._changes = changes
        self._requests = requests
        self._channels = channels
        self._deletions = deletions
        self._reassignments = reassignments
        self._try_later = try_later
        self._watches = Watches(on_change)

    # Registrations

    async def registered(self) -> dict[int, BrokerInfo]:
        """Reads the registrations, and watches them (A). One that is damaged is left out."""
        found = {}
        for name in await self._store.children(znodes.BROKER_IDS, self._watches.of(znodes.BROKER_IDS)):
            path = f"{znodes.BROKER_IDS}/{name}"
            entry = await self._store.exists(path, self._watches.of(path))
            if entry is None:
                continue
            try:
                broker = znodes.parse_broker(znodes.parse_broker_id(path), entry.data, entry.created)
                found[broker.broker_id] = broker
            except StoreDamaged as error:
                log.error("registration of a broker ignored", broker=name, reason=str(error))
        return dict(sorted(found.items()))

    def usable(self, registered: Mapping[int, BrokerInfo]) -> dict[int, BrokerInfo]:
        """Returns those that support the finalized features (F). The others are logged once."""
        found = {}
        for broker_id, broker in registered.items():
            lacking = self._features.lacking(broker)
            if not lacking:
                found[broker_id] = broker
            elif self._left_out.get(broker_id) != broker.epoch:
                self._left_out[broker_id] = broker.epoch
                log.error("broker not used, it does not support finalized features", broker=broker_id, features=lacking)
        return found

    async def changed(self) -> None:
        """Reacts to a change of the registrations."""
        context = self._context
        found, known = self.usable(await self.registered()), dict(context.brokers)
        gone = [broker for broker, info in known.items() if broker not in found or found[broker].epoch != info.epoch]
        started = [broker for broker, info in found.items() if broker not in known or broker in gone]
        moved = [broker for broker, info in found.items() if broker not in started and info != known[broker]]
        if gone or started or moved:
            log.info("brokers changed", gone=gone, started=started, moved=moved, alive=list(found))
        restarted = [broker for broker in gone if broker in found]
        dead = [broker for broker in gone if broker not in found]
        for some in (restarted, dead):
            if some:
                await self._are_gone(some, unclean=not started)
        for broker in (*started, *moved):
            context.put_broker(found[broker])
        for broker in moved:
            self._channels.move(found[broker])
        if moved:
            self._requests.publish_brokers()
        if started:
            await self._have_started(started)

    async def _are_gone(self, gone: Collection[int], *, unclean: bool) -> None:
        crashed = [broker for broker in gone if broker not in self._context.shutting_down]
        for broker in gone:
            self._channels.remove(broker)
            self._context.remove_broker(broker)
        self._requests.publish_brokers()
        await self._deletions.brokers_died(gone)
        await self.settle(changed=gone, crashed=crashed, unclean=unclean)
        await self._reassignments.brokers_died(gone)

    async def _have_started(self, started: Collection[int]) -> None:
        self.introduce(started)
        await self.settle(changed=started)
        await self._reassignments.resume(started)
        await self._deletions.brokers_started(started)

    def introduce(self, brokers: Iterable[int]) -> None:
        """Opens the channels of brokers that have started, and sends them everything (B)."""
        for broker in brokers:
            self._channels.add(self._context.brokers[broker])
            self._requests.introduce(broker)

    # Leaders

    async def settle(
        self, *, changed: Collection[int] = (), crashed: Collection[int] = (), unclean: bool = True
    ) -> None:
        """Changes the partitions that must change (C). `changed`: brokers whose replicas are shown differently now;
        `crashed`: those of them that were lost without having shut down.

        `unclean`: elects replicas that are not in sync where a topic allows it.
        """
        context = self._context
        concerned: list[TopicPartition] = []
        doubtful: dict[str, None] = {}
        async for key, state in others_between(context.partitions()):
            present = context.present(key, state)
            if is_new(state) or state.leader not in present or len(present) < len(state.replicas):
                concerned.append(key)
                if unclean and needs_unclean_election(state, present, context.electable(key, state)):
                    doubtful[key.topic] = None
            if any(broker in changed for broker in state.replicas):
                context.update_phases(key, state)
                self._requests.publish(key)
        allowed = await self._unclean_topics(list(doubtful))

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            electable = context.electable(key, state)
            if is_new(state):
                return first_state(state, electable, context.epoch)
            present, is_allowed = context.present(key, state), key.topic in allowed
            return after_losses(
                state,
                present=present,
                electable=electable,
                unclean=is_allowed,
                crashed=crashed,
                controller_epoch=context.epoch,
            )

        are_new = [key for key in concerned if context.phase(key) is PartitionPhase.NEW]
        await self._carry_out(await self._changes.change(concerned, decide), are_new)

    async def have_restarted(self, restarted: Mapping[TopicPartition, Collection[int]]) -> None:
        """Changes the partitions that have replicas on brokers that have restarted (A). Raises ProtocolError if the
        store cannot write: nobody would find out again.
        """
        context = self._context

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            return after_restarts(state, restarted[key], context.electable(key, state), context.epoch)

        outcomes = await self._changes.change([key for key in restarted if key.topic not in context.deletions], decide)
        await self._carry_out(outcomes)
        for outcome in outcomes.values():
            if isinstance(outcome, ProtocolError):
                raise outcome

    async def lead_new(self, keys: Iterable[TopicPartition]) -> None:
        """Chooses the first leaders of those partitions that have none because no replica was alive."""

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            return first_state(state, self._context.electable(key, state), self._context.epoch)

        are_new = [key for key in keys if self._context.phase(key) is PartitionPhase.NEW]
        await self._carry_out(await self._changes.change(are_new, decide), are_new)

    async def _carry_out(
        self, outcomes: dict[TopicPartition, Outcome], are_new: Collection[TopicPartition] = ()
    ) -> None:
        """Sends the new states."""
        changed, has_failed = [], False
        async for key, outcome in others_between(outcomes.items(), COST):
            has_failed |= isinstance(outcome, ProtocolError)
            if isinstance(outcome, PartitionState):
                self._context.update_phases(key, outcome)
                self._requests.lead(self._context.present(key, outcome), key, is_new=key in are_new)
                self._requests.publish(key)
                changed.append(key)
                log.debug("partition changed", partition=str(key), leader=outcome.leader, isr=outcome.isr)
        if has_failed:
            self._try_later()
        if changed:
            log.info("leaders and replicas in sync changed", partitions=len(changed))

    async def _unclean_topics(self, names: list[str]) -> set[str]:
        """The topics among these that may elect a leader that is not in sync."""
        allowed = set()
        entries = await self._store.entries([znodes.topic_config_path(name) for name in names])
        for name, entry in zip(names, entries, strict=True):
            try:
                path = znodes.topic_config_path(name)
                own = {} if entry is None else znodes.parse_config(path, entry.data)
                known = {UNCLEAN: own[UNCLEAN]} if UNCLEAN in own else {}
                if self._config.log_config(known).unclean_leader_election_enable:
                    allowed.add(name)
            except (StoreDamaged, ValueError) as error:
                log.error("settings of a topic not read", topic=name, reason=str(error))
        return allowed

    # Log directories

    async def directories_failed(self) -> None:
        """Sends brokers with a failed log directory all their replicas (D)."""
        path = znodes.LOG_DIR_EVENTS
        names = await self._store.children(path, self._watches.of(path))
        paths = [f"{path}/{name}" for name in names]
        brokers: dict[int, None] = {}
        for entry_path, entry in zip(paths, await self._store.entries(paths), strict=True):
            try:
                if entry is not None:
                    brokers[znodes.parse_log_dir_event(entry_path, entry.data)] = None
            except StoreDamaged as error:
                log.error("notification of a failed log directory ignored", reason=str(error))
        if brokers:
            log.info("replicas asked for because of a disk", brokers=list(brokers))
        async for key, state in others_between(self._context.partitions()):
            if not is_new(state):
                self._requests.lead([broker for broker in state.replicas if broker in brokers], key)
        await self.forget_notifications(paths)

    async def forget_notifications(self, paths: Iterable[str]) -> None:
        """Deletes entries that have been dealt with."""
        for outcome in await self._store.pipeline([[Delete(path)] for path in paths]):
            if isinstance(outcome, MetadataStoreError):
                log.warning("notification not deleted", reason=str(outcome))

    async def replicas_answered(self, broker_id: int, errors: dict[TopicPartition, ErrorCode]) -> None:
        """Notes which replicas a broker has lost, and which it has again (D)."""
        if broker_id not in self._context.brokers:
            return
        offline = self._context.offline_replicas.setdefault(broker_id, {})
        lost: list[TopicPartition] = []
        found: list[TopicPartition] = []
        for key, error in errors.items():
            if error is ErrorCode.KAFKA_STORAGE_ERROR and key not in offline and self._context.state(key) is not None:
                offline[key] = None
                lost.append(key)
            elif error is ErrorCode.NONE and key in offline:
                del offline[key]
                found.append(key)
        if lost:
            log.warning("replicas offline", broker=broker_id, partitions=[str(key) for key in lost])
        if found:
            log.info("replicas online again", broker=broker_id, partitions=[str(key) for key in found])
        for key in (*lost, *found):
            state = self._context.state(key)
            if state is not None and key.topic not in self._context.deletions:
                self._context.update_phases(key, state)
                if key in offline:
                    self._requests.stop(broker_id, key, delete=False)
                else:  # it may have come back before it was stopped
                    self._requests.lead([broker_id], key)
                self._requests.publish(key)
        if lost or found:
            await self.settle()

    # Controlled shutdown

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Prepares for the end of a broker (E). Returns the partitions that it still leads, because no other replica
        can. Raises BROKER_NOT_AVAILABLE and STALE_BROKER_EPOCH.
        """
        context = self._context
        broker = context.brokers.get(broker_id)
        if broker is None:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not registered")
        if 0 <= broker_epoch < broker.epoch:
            raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has registered again")
        context.shutting_down[broker_id] = None
        log.info("broker shuts down", broker=broker_id)
        concerned = []
        async for key, state in others_between(context.partitions()):
            if broker_id in state.replicas and len(state.replicas) > 1 and not is_new(state):
                concerned.append(key)

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            if state.leader != broker_id:
                return without_replica(state, broker_id, context.epoch)
            return shutdown_election(state, context.electable(key, state), context.shutting_down, context.epoch)

        await self._carry_out(await self._changes.change(concerned, decide))
        remaining = []
        async for key in others_between(concerned):
            after = context.state(key)
            if after is None or after.leader == broker_id:
                remaining.append(key)
            elif broker_id not in after.isr:
                context.update_phases(key, after)
                self._requests.stop(broker_id, key, delete=False)
                self._requests.publish(key)
        return remaining

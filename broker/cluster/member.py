"""This broker as a member of the cluster: wires what connects it to the metadata store, the controller and the other
brokers. A broker with a store of its own is a cluster of one and goes the same way.

    open     open the store; read the settings and which topics there are
    join     register, and stand for election; returns when this broker has the roles that the controller gave it, if it
             is the controller itself
    leave    let the controller move the leaderships of this broker to others
    stop     resign, end the registration, and stop following
    close    close the store, which deletes the registration, and the connections to other brokers
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import structlog

from odradek.broker.background.background import Background
from odradek.broker.cluster.changes import ClusterChanges
from odradek.broker.cluster.controller_channel import ControllerChannel, NoController
from odradek.broker.cluster.disk_failures import DiskFailures
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.cluster.known_topics import KnownTopics
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.metadata_store.start_up import open_store
from odradek.broker.peers.peers import Peers
from odradek.broker.replica.follower.fetcher_manager import ReplicaFetchers
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.replica.role_changes import RoleChanges
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.schema import Message
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.storage.log_config import LogConfig
from odradek.timer import Clock, SystemTimer

if TYPE_CHECKING:
    from odradek.broker.peers.peer import Connect

ALTER_PARTITION_TIMEOUT_MS = 10_000

log = structlog.get_logger("broker.cluster")


class ClusterMember:
    """`answer_own(request)` answers a request of this broker to its own controller; `topic_deleted` see ClusterChanges.
    `connect`: see `Peers`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        *,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        clock: Clock,
        timer: SystemTimer,
        random: Random,
        completions: CompletionQueue,
        background: Background,
        connect: Connect | None,
        answer_own: Callable[[Message], Awaitable[Any]],
        topic_deleted: Callable[[str], Iterator[None]],
    ) -> None:
        self.store = store
        self._config = config
        self._metadata = metadata
        self._replica_manager = replica_manager
        spawn, broker_id = background.spawn, metadata.broker_id
        self._spawn = spawn
        self._num_replica_fetchers = config.num_replica_fetchers
        self.topic_purgatory = DelayedOperationPurgatory("topic", timer, clock, completions)
        self.election_purgatory = DelayedOperationPurgatory("ElectLeader", timer, clock, completions)
        self.known_topics = KnownTopics(broker_id)
        self.peers = Peers(
            metadata.broker,
            broker_id=broker_id,
            listener=config.inter_broker_listener,
            spawn=spawn,
            connect=connect,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
        )
        self.registration = BrokerRegistration(
            store,
            clock=clock,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            spawn=spawn,
            on_registered=lambda _: None,
        )
        self.channel = ControllerChannel(
            metadata, self.peers, own=answer_own, broker_epoch=self._broker_epoch, clock=clock
        )
        self.configs = DynamicConfigs(
            store, metadata, config, apply_topic=self._apply_topic, clock=clock, spawn=spawn, turns=background.turns
        )
        disk_failures = self.disk_failures = DiskFailures(store, replica_manager, broker_id, spawn)
        replica_manager.on_log_failed = disk_failures.failed
        replica_manager.alter_partitions.send = self._alter_partitions
        replica_manager.alter_partitions.broker_epoch = self._broker_epoch
        self.fetchers = ReplicaFetchers(
            FetcherSettings.from_config(config)._replace(broker_id=broker_id),
            partitions=replica_manager.partitions.get,
            peer=self.peers.peer,
            truncation_steps=replica_manager.log_manager.truncation_steps,
            flusher=replica_manager.flusher,
            watermark_moved=replica_manager.wakeups.watermark_moved,
            on_log_failed=disk_failures.failed,
            clock=clock,
            background=background,
        )
        self.changes = ClusterChanges(
            metadata,
            RoleChanges(replica_manager, self.fetchers, disk_failures.log_not_created),
            self.configs,
            registered=self.registration.registered,
            broker_epoch=self._broker_epoch,
            stored_topics=lambda: store.children(znodes.TOPICS),
            topic_deleted=topic_deleted,
            brokers_changed=self._brokers_changed,
        )
        self.controller = Controller(
            store,
            broker_id=broker_id,
            listener=config.inter_broker_listener,
            config=config,
            clock=clock,
            source=random,
            spawn=spawn,
            topic_purgatory=self.topic_purgatory,
            election_purgatory=self.election_purgatory,
            known_leader=metadata.leader_of,
            own=self.changes,
            channel_to=self.peers.channel_to,
            on_active_controller=self._controller_changed,
        )

    # Life

    async def open(self, known_cluster_id: str | None, random: Random) -> str:
        """Returns the cluster id. Raises ClusterIdMismatch, StoreDamaged, StoreUnavailable."""
        self._metadata.cluster_id = await open_store(self.store, known_cluster_id, random)
        await self.configs.load()
        await self.known_topics.load(self.store)
        return self._metadata.cluster_id

    async def join(self, broker: BrokerInfo) -> None:
        """Raises BrokerIdInUse, StoreUnavailable."""
        await self.registration.register(broker)
        await self.controller.start()

    async def leave(self) -> None:
        """Tries controlled.shutdown.max.retries times."""
        config = self._config
        if not config.controlled_shutdown_enable:
            return
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            try:
                left = await self.channel.controlled_shutdown(config.controller_socket_timeout_ms)
            except (NoController, ProtocolError) as error:
                log.warning("leaderships not moved", reason=str(error))
            else:
                if not left:
                    return
                log.warning("leaderships not moved", partitions=[str(key) for key in left])

    async def stop(self) -> None:
        """After this, the broker changes no roles and follows nobody."""
        await self.controller.stop()
        self.registration.stop()
        await self.fetchers.stop()

    async def close(self) -> None:
        """Deletes the registration with the session."""
        await self.store.close()
        await self.peers.close()

    def settings_changed(self) -> None:
        """Applies the dynamic settings that the parts keep a copy of."""
        fetchers = self._config.num_replica_fetchers
        if fetchers != self._num_replica_fetchers:
            self._num_replica_fetchers = fetchers
            self._spawn(self.fetchers.resize(fetchers), "resize the fetchers")

    # What the parts need of each other

    def _broker_epoch(self) -> int:
        return self.registration.broker_epoch

    async def _alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self.channel.send(request, ALTER_PARTITION_TIMEOUT_MS)
        return response

    def _controller_changed(self, controller_id: int) -> None:
        if controller_id >= 0:
            self._metadata.controller_id = controller_id

    def _brokers_changed(self) -> None:
        self.peers.refresh()
        self._replica_manager.live_brokers_changed()

    def _apply_topic(self, name: str, config: LogConfig) -> None:
        self._replica_manager.update_log_config(name, config)
        if self.controller.is_active and config.unclean_leader_election_enable:
            self.controller.unclean_elections_allowed()

"""This broker as a member of its cluster: what it carries out for the controller, the settings that it shares with the
other brokers, and its life from joining the cluster to leaving it.

    (A) A broker that leaves asks the controller to move its leaderships away. It gives up after LEAVE_PATIENCE_S, in
        which another controller can be elected, or when the metadata store has not answered for STORE_PATIENCE_S:
        without the store, no controller can move anything. The store is then closed first of all, so that whatever
        waits for it ends.
    (B) When the store has ended this broker's session, other brokers may have been elected as leaders. This broker
        refuses to lead until the controller sends it its roles for a new registration (replica/role_changes.py).

links.py has its ways to the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from odradek.broker.background.background import Background
from odradek.broker.cluster.active_controller import NoController
from odradek.broker.cluster.changes import ClusterChanges
from odradek.broker.cluster.deltas import ClusterListener, Deltas
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.cluster.feature_follower import FeatureFollower
from odradek.broker.cluster.known_topics import KnownTopics
from odradek.broker.cluster.links import ClusterLinks
from odradek.broker.cluster.offline_replicas import OfflineReplicas
from odradek.broker.cluster.settings_in_effect import SettingsInEffect
from odradek.broker.cluster.user_credentials import UserCredentials
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry, MetadataStoreError, SessionState
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.broker.replica.follower.fetcher_manager import FetcherManager
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.replica.role_changes import RoleChanges
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.storage.log_config import LogConfig
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.cluster.stored_acls import StoredAcls
    from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer

LEAVE_PATIENCE_S = 22.0
"""How long a broker that leaves waits for its leaderships to be moved (A). The default session time-out is 18 s."""
STORE_PATIENCE_S = 2.5
"""If the store does not answer for so long, a broker that leaves no longer waits for the controller (A)."""
LOOK_AT_STORE_S = 0.5
"""How long a broker that leaves waits before each look whether the store answers."""

log = structlog.get_logger("broker.cluster")


class ClusterMember:
    """`listener` hears which topics have changed. `features` gets the finalized levels, `authorizer` the ACLs of the
    cluster; None for no access control.
    """

    def __init__(
        self,
        config: BrokerConfig,
        links: ClusterLinks,
        *,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        clock: Clock,
        background: Background,
        listener: ClusterListener,
        features: FinalizedFeatures,
        authorizer: AclAuthorizer | None = None,
    ) -> None:
        self._config = config
        self._links = links
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._spawn = background.spawn
        self._listener = listener
        self._num_replica_fetchers: int = config.num_replica_fetchers
        self._has_left = False
        self._is_store_silent = False
        self.known_topics = KnownTopics(metadata.broker_id)
        self.fetchers = self._new_fetchers(clock, background)
        roles = RoleChanges(replica_manager, self.fetchers)
        self.settings = SettingsInEffect(metadata, config, self._apply_topic)
        users = UserCredentials(links.store)
        deltas = Deltas(metadata, roles, self.settings, users, authorizer, features, self._brokers_changed)
        self.configs = DynamicConfigs(
            links.store,
            metadata,
            config,
            in_effect=self.settings,
            users=users,
            apply=deltas.apply_one,
            clock=clock,
            spawn=background.spawn,
            turns=background.turns,
        )
        self.features = FeatureFollower(links.store, deltas.apply_one, clock=clock, spawn=background.spawn)
        self.acls: StoredAcls | None = None
        if authorizer is not None:
            from odradek.broker.cluster.stored_acls import StoredAcls

            self.acls = StoredAcls(links.store, authorizer, deltas.apply_one, clock=clock, spawn=background.spawn)
        deltas.listeners += self.configs, listener
        self.offline_replicas = OfflineReplicas(
            replica_manager.partitions, replica_manager.log_manager, clock, links.disk_failures.report
        )
        self.changes = ClusterChanges(
            metadata,
            roles,
            self.configs,
            self.settings,
            deltas,
            registered=links.registration.registered,
            broker_epoch=links.registration.broker_epoch,
            stored_topics=lambda: links.store.children(znodes.TOPICS),
        )
        links.store.add_session_listener(self._session_changed)

    def _new_fetchers(self, clock: Clock, background: Background) -> FetcherManager:
        manager = self._replica_manager
        return FetcherManager(
            FetcherSettings.from_config(self._config)._replace(broker_id=self._metadata.broker_id),
            partitions=manager.partitions.get,
            peer=self._links.peers.peer,
            truncation_steps=manager.log_manager.truncation_steps,
            flusher=manager.flusher,
            quota=manager.follower_quota,
            watermark_moved=manager.wakeups.watermark_moved,
            on_log_failed=manager.log_failed,
            clock=clock,
            background=background,
        )

    # Life

    async def load(self) -> None:
        """Reads the ACLs, the settings, the features, and which topics there are. Raises StoreDamaged,
        StoreUnavailable.
        """
        if self.acls is not None:
            await self.acls.load()
        await self.configs.load()
        await self.features.load()
        await self.known_topics.load(self._links.store)

    async def register(self, broker: BrokerInfo) -> None:
        """Returns when the other brokers know of this one. Raises BrokerIdInUse, StoreUnavailable."""
        await self._links.registration.register(broker)

    async def stand_for_election(self) -> None:
        """Returns when there is a controller; see Terms.start. Raises StoreUnavailable."""
        await self._links.controller.terms.start(self.changes)

    async def leave(self) -> None:
        """Moves the leaderships to other brokers, if controlled.shutdown.enable is set (A)."""
        if not self._config.controlled_shutdown_enable:
            return
        leaving = self._spawn(self._move_leaderships(), "controlled shutdown")
        silence = self._spawn(self._silence_of_store(), "silence of the metadata store")
        await asyncio.wait([leaving, silence], timeout=LEAVE_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        self._is_store_silent = silence.done() and not leaving.done()
        if self._is_store_silent:
            log.warning("leaderships not moved", reason="the metadata store does not answer")
        elif not leaving.done():
            log.warning(
                "leaderships not moved",
                reason=f"the controller has not moved them in {LEAVE_PATIENCE_S:g} s",
                controller=self._metadata.controller_id,
                gives_up="the controlled shutdown: others are elected when this broker's session has ended",
            )
        leaving.cancel()
        silence.cancel()

    async def _move_leaderships(self) -> None:
        """Tries controlled.shutdown.max.retries times."""
        config = self._config
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            try:
                left = await self._links.active_controller.controlled_shutdown(config.controller_socket_timeout_ms)
            except (NoController, ProtocolError) as error:
                log.warning("leaderships not moved", reason=str(error))
            else:
                if not left:
                    return
                log.warning("leaderships not moved", partitions=[str(key) for key in left])

    async def _silence_of_store(self) -> None:
        """Returns when the store has not answered for STORE_PATIENCE_S."""
        try:
            while True:
                await asyncio.sleep(LOOK_AT_STORE_S)
                async with asyncio.timeout(STORE_PATIENCE_S):
                    await retry_until_connected(self._links.store, self._look_at_store)
        except (MetadataStoreError, TimeoutError):
            return

    async def _look_at_store(self) -> Entry | None:
        return await self._links.store.exists(znodes.CONTROLLER)

    async def stop(self) -> None:
        """After this, the broker changes no roles and follows nobody. The end of its session does not concern it."""
        self._has_left = True
        if self._is_store_silent:
            await self._links.store.close()
        await self._links.controller.terms.stop()
        self._links.registration.stop()
        await self.fetchers.stop()

    def settings_changed(self) -> None:
        """Applies the dynamic settings that the parts keep a copy of. The settings of all topics are applied next."""
        rates = self._config.dynamic_only
        self._replica_manager.leader_quota.set_limit(rates.leader_replication_throttled_rate)
        self._replica_manager.follower_quota.set_limit(rates.follower_replication_throttled_rate)
        fetchers = self._config.num_replica_fetchers
        if fetchers != self._num_replica_fetchers:
            self._num_replica_fetchers = fetchers
            self._spawn(self.fetchers.resize(fetchers), "resize the fetchers")

    # What changes concern

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST and not self._has_left:
            self.changes.session_ended()

    def _brokers_changed(self) -> None:
        self._links.peers.refresh()
        self._replica_manager.live_brokers_changed()
        self._listener.brokers_changed()

    def _apply_topic(self, name: str, config: LogConfig) -> None:
        self._replica_manager.update_log_config(name, config)
        self.fetchers.quota_changed()
        term = self._links.controller.terms.term
        if term is not None and config.unclean_leader_election_enable:
            term.elect_again()

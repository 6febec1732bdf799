"""This broker's links into its cluster: the connections to the other brokers, the registration, and the controller,
which may be its own.

They use none of what the broker carries out for the controller, and are made before it: the replica manager and the
coordinators ask the controller through them. This broker's controller gets the way back when it stands for election
(`Terms.start`).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from odradek.broker.background.background import Background
from odradek.broker.cluster.active_controller import ActiveController
from odradek.broker.cluster.offline_replicas import DiskFailures
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.peers.peers import Peers
from odradek.broker.replica.replica_manager import ClusterAccess
from odradek.broker.settings.config import BrokerConfig
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.timer import Clock, SystemTimer

if TYPE_CHECKING:
    from odradek.clients.network_client import Connect


class ClusterLinks:
    """`connect`: see `Peers`. `first_features`: the levels of the features in a new cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        *,
        metadata: MetadataCache,
        features: FinalizedFeatures,
        first_features: Mapping[str, int],
        clock: Clock,
        timer: SystemTimer,
        random: Random,
        completions: CompletionQueue,
        background: Background,
        connect: Connect | None,
    ) -> None:
        self.store = store
        self._metadata = metadata
        self.peers = _peers(config, metadata, background, connect)
        self.registration = BrokerRegistration(
            store,
            clock=clock,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            spawn=background.spawn,
            on_registered=lambda _: None,
        )
        self.disk_failures = DiskFailures(store, metadata.broker_id, background.spawn)
        self.waits = RequestWaits(
            DelayedOperationPurgatory("topic", timer, clock, completions),
            DelayedOperationPurgatory("ElectLeader", timer, clock, completions),
            metadata.leader_of,
        )
        self.controller = Controller(
            store,
            broker_id=metadata.broker_id,
            listener=config.inter_broker_listener,
            config=config,
            clock=clock,
            source=random,
            spawn=background.spawn,
            turns=background.turns,
            waits=self.waits,
            channel_to=self.peers.channel_to,
            on_active_controller=self._controller_changed,
            first_features=first_features,
            on_features_written=features.put,
        )
        self.active_controller = ActiveController(
            metadata,
            self.peers,
            own=self.controller,
            broker_epoch=self.registration.broker_epoch,
            clock=clock,
        )

    def for_replicas(self) -> ClusterAccess:
        """Returns what the replica manager uses."""
        return ClusterAccess(
            is_known=self._metadata.contains,
            topic_name=self._metadata.topic_name,
            is_alive=self._metadata.is_alive,
            alter_partition=self.active_controller.alter_partition,
            broker_epoch=self.registration.broker_epoch,
            replica_lost=self.disk_failures.replica_lost,
        )

    def _controller_changed(self, controller_id: int) -> None:
        if controller_id >= 0:
            self._metadata.controller_id = controller_id


def _peers(config: BrokerConfig, metadata: MetadataCache, background: Background, connect: Connect | None) -> Peers:
    return Peers(
        metadata.broker,
        broker_id=metadata.broker_id,
        listener=config.inter_broker_listener,
        spawn=background.spawn,
        connect=connect,
        connect_timeout_ms=config.socket_connection_setup_timeout_ms,
    )

"""Creates and wires the broker's two coordinators, each with a runtime over its internal topic.

Call `begin_loading` after the broker has begun to serve, and `stop` before the replica manager shuts down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TypeVar

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.tasks import Soon, ThreadsAndTurns
from odradek.broker.cluster.active_controller import ActiveController
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.cluster_topics import ClusterTopics
from odradek.broker.coordinator.group.consumer.settings import GroupSettingsInEffect
from odradek.broker.coordinator.group.coordinator import ConsumerGroups, GroupCoordinator
from odradek.broker.coordinator.internal_topics import InternalTopics, group_log_settings, transaction_log_settings
from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime, RuntimeSettings
from odradek.broker.coordinator.runtime.shard import NewShard
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.local_markers import LocalMarkerWriter
from odradek.broker.coordinator.transaction.marker_writing import MarkerWriter
from odradek.broker.coordinator.transaction.producer_ids import ProducerIds
from odradek.broker.coordinator.transaction.remote_markers import RemoteMarkerWriter
from odradek.broker.coordinator.transaction.remote_verification import RemoteVerification
from odradek.broker.features.features import TRANSACTION_VERSION
from odradek.broker.metadata.metadata_cache import NO_LEADER, TRANSACTION_TOPIC, MetadataCache
from odradek.broker.peers.peers import Peers
from odradek.broker.replica.leader.appends import Appends
from odradek.broker.replica.leader.transaction_markers import TransactionMarkers
from odradek.broker.replica.leader.verification import TransactionVerification
from odradek.broker.replica.leadership_listener import Leaderships
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigResourceType
from odradek.purgatory import CompletionQueue
from odradek.timer import Clock, SystemTimer

PRODUCER_IDS_TIMEOUT_MS = 5000
T = TypeVar("T")


class Coordinators:
    """`soon(function)` calls `function` in the next iteration of the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        timer: SystemTimer,
        random: Random,
        completions: CompletionQueue,
        background: ThreadsAndTurns,
        soon: Soon,
        metadata: MetadataCache,
        active_controller: ActiveController,
        partitions: HostedPartitions,
        appends: Appends,
        markers: TransactionMarkers,
        leaderships: Leaderships,
        verification: TransactionVerification,
        peers: Peers,
        levels: Mapping[str, int],
    ) -> None:
        self._config = config
        self._clock = clock
        self._background = background
        self._metadata = metadata
        self._partitions = partitions
        self._appends = appends
        self._leaderships = leaderships
        self._peers = peers
        self._marker_writers: dict[int, RemoteMarkerWriter] = {}
        self._producer_ids = ProducerIds(
            partial(active_controller.allocate_producer_ids, PRODUCER_IDS_TIMEOUT_MS), background.spawn
        )
        self.runtimes: list[CoordinatorRuntime] = []
        self.internal_topics = InternalTopics(active_controller, metadata, config, background.spawn)
        self.groups = GroupCoordinator(
            GroupSettings.from_config(config),
            self._consumer_groups(levels, soon),
            clock=clock,
            timer=timer,
            completions=completions,
            random=random,
            start_runtime=partial(self._start_runtime, group_log_settings(config)),
        )
        self._own_logs = LocalMarkerWriter(markers.append, soon)
        self.transactions = TransactionCoordinator(
            clock=clock,
            longest_timeout_ms=self.longest_transaction_ms,
            new_producer_id=self.new_producer_id,
            leader_of=self._leader_of,
            writer_to=self._marker_writer_to,
            own_logs=self._own_logs,
            later=timer.call_later,
            soon=soon,
            transaction_version=lambda: levels.get(TRANSACTION_VERSION, 0),
            start_runtime=partial(self._start_runtime, transaction_log_settings(config)),
        )
        remote_verification = RemoteVerification(
            self._coordinator_of,
            lambda broker_id: peers.peer(broker_id, "verification"),
            broker_id=metadata.broker_id,
            spawn=background.spawn,
        )
        verification.ask_coordinators(
            self.transactions.is_open_transaction,
            remote_verification.elsewhere,
            remote_verification.ask,
            self.transactions.add_for_client,
        )

    def begin_loading(self) -> None:
        """Loads the partitions of the internal topics that this broker leads."""
        for runtime in self.runtimes:
            runtime.begin_loading()

    def stop(self) -> None:
        """Unloads all shards and answers parked requests."""
        for runtime in self.runtimes:
            runtime.stop()
        self.groups.stop()

    def new_producer_id(self, use: Callable[[int | ProtocolError], object]) -> None:
        """Calls `use` once, later, with an unused producer id or with the error that prevented one."""
        self._background.spawn(self._producer_ids.give(use), "a producer id")

    def longest_transaction_ms(self) -> int:
        """Returns the current value of transaction.max.timeout.ms."""
        return self._config.transaction_max_timeout_ms

    def _consumer_groups(self, levels: Mapping[str, int], soon: Soon) -> ConsumerGroups:
        config, metadata = self._config, self._metadata
        settings = GroupSettingsInEffect(config, metadata.named_configs(ConfigResourceType.GROUP))
        return ConsumerGroups(
            ClusterTopics(metadata),
            settings.of,
            self._work,
            soon,
            levels,
            config.group_coordinator_rebalance_protocols,
            config.message_max_bytes // 2,
        )

    def _work(
        self,
        steps: Steps[T],
        then: Callable[[T], object],
        failed: Callable[[Exception], object],
        name: str,
        size: int = 0,
    ) -> None:
        """See `Work`."""
        self._background.spawn(self._background.turns.take_then(steps, then, failed, size), name)

    def _leader_of(self, topic_partition: TopicPartition) -> int | None:
        """Returns None only for a partition that does not exist: until the metadata is complete, any may exist."""
        leader = self._metadata.leader_of(topic_partition)
        return NO_LEADER if leader is None and not self._metadata.is_complete else leader

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """Returns None or NO_LEADER if there is none now."""
        if not self.internal_topics.exists(TRANSACTION_TOPIC):
            return None
        partition = self.transactions.runtime.partition_for(transactional_id)
        return self._metadata.leader_of(TopicPartition(TRANSACTION_TOPIC, partition))

    def _marker_writer_to(self, broker_id: int) -> MarkerWriter | None:
        """Returns None for a broker that is not alive; markers for its partitions are retried."""
        if broker_id == self._metadata.broker_id:
            return self._own_logs
        if broker_id not in self._metadata.brokers:
            return None
        writer = self._marker_writers.get(broker_id)
        if writer is None:
            peer = self._peers.peer(broker_id, "transaction-markers")
            writer = self._marker_writers[broker_id] = RemoteMarkerWriter(peer, self._background.spawn)
        return writer

    def _start_runtime(self, settings: RuntimeSettings, new_shard: NewShard) -> CoordinatorRuntime:
        runtime = CoordinatorRuntime(
            settings,
            new_shard=new_shard,
            topics=self._metadata.topics,
            planned_count=partial(self.internal_topics.planned_count, settings.topic),
            partitions=self._partitions,
            appends=self._appends,
            leaderships=self._leaderships,
            clock=self._clock,
            background=self._background,
        )
        self.runtimes.append(runtime)
        runtime.start()
        return runtime

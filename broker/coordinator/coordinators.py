"""Creates and wires the broker's two coordinators, each with a runtime over its internal topic.

Call `begin_loading` after the broker has begun to serve, and `stop` before the replica manager shuts down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from odradek.broker.background.tasks import Threads
from odradek.broker.controller.metadata_store import MetadataStore
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.coordinator.group.settings import GroupSettings
from odradek.broker.coordinator.internal_topics import InternalTopics, TopicCreator
from odradek.broker.coordinator.runtime import CoordinatorRuntime, RuntimeSettings
from odradek.broker.coordinator.shard import Shard
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.local_markers import LocalMarkerWriter
from odradek.broker.coordinator.transaction.markers import MarkerWriter
from odradek.broker.coordinator.transaction.producer_ids import ProducerIds
from odradek.broker.coordinator.transaction.state_change_log import Soon
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.purgatory import CompletionQueue
from odradek.timer import Clock, SystemTimer


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
        background: Threads,
        soon: Soon,
        metadata: MetadataCache,
        metadata_store: MetadataStore,
        controller: TopicCreator,
        replica_manager: ReplicaManager,
    ) -> None:
        self._config = config
        self._clock = clock
        self._background = background
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._producer_ids = ProducerIds(metadata_store, metadata.broker_id)
        self.runtimes: list[CoordinatorRuntime] = []
        self.internal_topics = InternalTopics(controller, metadata, config, background.spawn)
        self.groups = GroupCoordinator(
            GroupSettings.from_config(config),
            clock=clock,
            timer=timer,
            completions=completions,
            random=random,
            start_runtime=partial(self._start_runtime, RuntimeSettings.for_groups(config)),
        )
        self._own_logs = LocalMarkerWriter(replica_manager, soon)
        self.transactions = TransactionCoordinator(
            clock=clock,
            longest_timeout_ms=self.longest_transaction_ms,
            new_producer_id=self.new_producer_id,
            leader_of=metadata.leader_of,
            writer_to=self._marker_writer_to,
            own_logs=self._own_logs,
            later=timer.call_later,
            soon=soon,
            start_runtime=partial(self._start_runtime, RuntimeSettings.for_transactions(config)),
        )
        replica_manager.verification.is_open_transaction = self.transactions.is_open_transaction

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
        return int(self._config["transaction.max.timeout.ms"])

    def _marker_writer_to(self, broker_id: int) -> MarkerWriter | None:
        """Returns None for other brokers; markers for their partitions are retried."""
        return self._own_logs if broker_id == self._metadata.broker_id else None

    def _start_runtime(self, settings: RuntimeSettings, new_shard: Callable[[int, int], Shard]) -> CoordinatorRuntime:
        runtime = CoordinatorRuntime(
            settings,
            new_shard=new_shard,
            partition_count=lambda: self.internal_topics.partition_count(settings.topic),
            replica_manager=self._replica_manager,
            clock=self._clock,
            background=self._background,
        )
        self.runtimes.append(runtime)
        runtime.start()
        return runtime

"""`__consumer_offsets` and `__transaction_state`: creates them when they are first needed, and says how their logs are
read and written.

Their settings are Kafka's. If creation fails (fewer brokers than the replication factor, a full disk), the reason is
logged and the next request that needs the topic tries again. Until then the coordinator is not available.

Source: Kafka's `AutoTopicCreationManager`, `GroupCoordinator.groupMetadataTopicConfigs`,
`TransactionStateManager.transactionTopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.cluster.active_controller import NoController
from odradek.broker.coordinator.runtime.runtime import RuntimeSettings
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC, MetadataCache
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError

log = structlog.get_logger("coordinator")


def group_topic(config: BrokerConfig) -> NewTopic:
    """Returns the definition of `__consumer_offsets`."""
    return NewTopic(
        GROUP_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )


def transaction_topic(config: BrokerConfig) -> NewTopic:
    """Returns the definition of `__transaction_state`."""
    return NewTopic(
        TRANSACTION_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs={
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )


RECIPES: Mapping[str, Callable[[BrokerConfig], NewTopic]] = {
    GROUP_TOPIC: group_topic,
    TRANSACTION_TOPIC: transaction_topic,
}


def group_log_settings(config: BrokerConfig) -> RuntimeSettings:
    """Returns how to read and write `__consumer_offsets`."""
    return RuntimeSettings(
        GROUP_TOPIC,
        config.offsets_load_buffer_size,
        config.offsets_commit_timeout_ms,
        config.offsets_commit_required_acks,
        config.offsets_topic_compression_codec,
    )


def transaction_log_settings(config: BrokerConfig) -> RuntimeSettings:
    """Returns how to read and write `__transaction_state`. Decisions carry the transaction's own timeout."""
    return RuntimeSettings(
        TRANSACTION_TOPIC,
        config.transaction_state_log_load_buffer_size,
        config.transaction_max_timeout_ms,
        loads_replicated=True,
        loads_each_epoch=True,
    )


class TopicCreator(Protocol):
    """Creates topics: `ActiveController`."""

    async def create_topics(self, topics: Sequence[NewTopic], timeout_ms: int) -> list[ProtocolError | None]: ...


class InternalTopics:
    """Creates the internal topics. `spawn` starts a background task."""

    def __init__(
        self,
        controller: TopicCreator,
        metadata: MetadataCache,
        config: BrokerConfig,
        spawn: Spawn,
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._config = config
        self._spawn = spawn
        self._in_creation: set[str] = set()

    def exists(self, name: str) -> bool:
        return self._metadata.topic(name) is not None

    def planned_count(self, name: str) -> int:
        """Returns the partition count that the missing topic would be created with. Raises COORDINATOR_NOT_AVAILABLE
        while this broker does not know whether the topic exists.
        """
        if not self._metadata.is_complete:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return int(self.definition(name).num_partitions)

    def definition(self, name: str) -> NewTopic:
        """Returns the topic's definition under the current settings."""
        return RECIPES[name](self._config)

    def create(self, name: str) -> None:
        """Starts creating the topic in the background, unless it exists, may exist or is being created."""
        if name not in self._in_creation and not self.exists(name) and self._metadata.is_complete:
            self._in_creation.add(name)
            self._spawn(self._create_in_background(name), f"creation of {name}")

    async def ensure(self, name: str) -> None:
        """Returns when the controller has created the topic, unless it exists: this broker may learn of it later.
        Raises COORDINATOR_NOT_AVAILABLE if it cannot be created.
        """
        if self.exists(name):
            return
        topic = self.definition(name)
        timeout_ms = self._config.request_timeout_ms
        try:
            result = (await self._controller.create_topics([topic], timeout_ms))[0]
        except NoController as error:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if isinstance(result, ProtocolError) and result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            log.error(
                "internal topic not created",
                topic=name,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                reason=str(result),
            )
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.error_message)

    async def _create_in_background(self, name: str) -> None:
        try:
            await self.ensure(name)
        except ProtocolError:
            pass  # `ensure` has logged the error
        finally:
            self._in_creation.discard(name)

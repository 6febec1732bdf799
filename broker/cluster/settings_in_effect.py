"""The settings of topics and brokers, as this broker applies them: to its own config, and to the logs of topics.

(A) Settings that cannot be used (of another release, say) are logged, and the defaults apply.
(B) A log is opened with the settings that were known when its role came, and gets those that changed meanwhile once it
    is open: `changes` counts, `apply_again` applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import structlog

from odradek.broker.background.stepwise import in_steps, others_between
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.settings.config import BrokerConfig
from odradek.storage.log_config import LogConfig

COST = 10
"""The cost of applying the settings of one topic, in items of a step."""

log = structlog.get_logger("broker.cluster")


class SettingsInEffect:
    """`apply_topic(name, config)` applies a topic's settings to its logs."""

    def __init__(
        self, cache: MetadataCache, config: BrokerConfig, apply_topic: Callable[[str, LogConfig], object]
    ) -> None:
        self._cache = cache
        self._config = config
        self._apply_topic = apply_topic
        self.changes = 0
        """How often settings have changed (B)."""
        self.topics: dict[str, None] = {}
        """Those whose settings are known. They may not be in the metadata yet, while their logs are open."""

    def log_config(self, topic: str) -> LogConfig:
        """Returns the log settings of a topic (A)."""
        config = self._cache.topic_config(topic)
        try:
            return self._config.log_config(config)
        except ValueError as error:
            log.error("stored topic settings ignored", topic=topic, config=dict(config), reason=str(error))
            return self._config.log_config({})

    def know(self, topic: str, settings: Mapping[str, str]) -> None:
        """Notes the settings of a topic, before the topic is served or its settings are applied."""
        self._cache.put_topic_config(topic, settings)
        self.topics[topic] = None

    def topic_changed(self, topic: str, settings: Mapping[str, str]) -> None:
        """Applies a topic's settings to its logs."""
        self.know(topic, settings)
        self.changes += 1
        self._apply_topic(topic, self.log_config(topic))

    async def broker_changed(self, broker_id: int | None, settings: Mapping[str, str]) -> None:
        """Applies a broker's settings (None: the cluster-wide defaults), and what results for all logs."""
        self._cache.put_broker_config(broker_id, settings)
        await self.apply_everywhere()

    async def apply_to_broker(self) -> None:
        """Applies the settings of this broker."""
        cache = self._cache
        await in_steps(self._config.applying(cache.broker_config(None), cache.broker_config(cache.broker_id)))

    async def apply_everywhere(self) -> None:
        """Applies the settings of this broker and of all topics."""
        self.changes += 1
        await self.apply_to_broker()
        await self.apply_again(self.topics | dict.fromkeys(self._cache.topic_names()))

    async def apply_again(self, topics: Iterable[str]) -> None:
        """Applies the settings of topics to their logs, of which some were opened while the settings changed (B)."""
        async for topic in others_between(topics, COST):
            self._apply_topic(topic, self.log_config(topic))

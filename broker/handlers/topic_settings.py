"""A new topic's settings as CreateTopics answers them from v5 on (KIP-525): every one, with where its value comes
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from broker.config import BrokerConfig
from broker.settings import TOPIC, value_text
from broker.settings.setting import Setting
from protocol.messages.topics import CreateTopicsResponse

CreatableTopicConfigs = CreateTopicsResponse.CreatableTopicConfigs


class ConfigSource(IntEnum):
    """Where a value comes from; Kafka's `DescribeConfigsResponse.ConfigSource`."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


def created_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """All settings of a topic with these of its own."""
    values = config.topic_values(overrides)
    return [
        CreatableTopicConfigs(
            name=setting.name,
            value=value_text(values[setting.name]),
            read_only=False,
            config_source=ConfigSource.TOPIC if setting.name in overrides else inherited_source(config, setting),
            is_sensitive=setting.is_sensitive,
        )
        for setting in TOPIC.values()
        if not setting.internal
    ]


def inherited_source(config: BrokerConfig, setting: Setting) -> ConfigSource:
    """Where the default of a topic's setting comes from: the innermost layer that has one of its synonyms."""
    names = [synonym.name for synonym in setting.synonyms]
    layers = (
        (ConfigSource.DYNAMIC_BROKER, config.per_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster_wide),
        (ConfigSource.STATIC_BROKER, config.static),
    )
    return next((source for source, layer in layers if any(name in layer for name in names)), ConfigSource.DEFAULT)

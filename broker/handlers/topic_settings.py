"""A new topic's settings as CreateTopics answers them from v5 on (KIP-525): all of them, each with its source."""

from __future__ import annotations

from collections.abc import Mapping

from broker.config import BrokerConfig
from broker.config_description import describe_topic
from protocol.messages.topics import CreateTopicsResponse

CreatableTopicConfigs = CreateTopicsResponse.CreatableTopicConfigs


def created_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """All settings of a topic with these of its own."""
    return [
        CreatableTopicConfigs(
            name=setting.name,
            value=setting.value,
            read_only=setting.read_only,
            config_source=setting.source,
            is_sensitive=setting.is_sensitive,
        )
        for setting in describe_topic(config, overrides)
    ]

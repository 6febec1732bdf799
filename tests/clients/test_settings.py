"""Settings through third-party admin clients."""

from __future__ import annotations

from collections.abc import Callable

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.clients.conftest import ClientBroker


def test_kafka_python_describes_and_alters_a_topics_settings(
    client_broker: ClientBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    admin = KafkaAdminClient(bootstrap_servers=client_broker.bootstrap)
    try:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "123456"})])
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    finally:
        admin.close()
    settings = described["topic"][topic]
    assert settings["retention.ms"]["value"] == "123456"
    assert len(settings) >= 36

"""Settings through third-party admin clients."""

from __future__ import annotations

import subprocess
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


def test_kafkas_config_command_describes_what_it_changed(
    client_broker: ClientBroker, new_topic: Callable[[int], str], java_tools: list[str]
) -> None:
    topic = new_topic(1)

    def configs(*arguments: str) -> str:
        command = [*java_tools, "kafka.admin.ConfigCommand", "--bootstrap-server", client_broker.bootstrap, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    configs(*of_topic, "--alter", "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    described = configs(*of_topic, "--describe")
    assert "retention.ms=5000 " in described
    assert "cleanup.policy=compact,delete " in described
    configs(*of_topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in configs(*of_topic, "--describe")

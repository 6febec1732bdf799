"""The settings of the server.properties that Kafka 3.9 and 4.4 ship: a broker starts with them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.settings.config import BrokerConfig, load_config

COMMON = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
"""
KRAFT = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs=/tmp/kraft-combined-logs
log.segment.bytes=1073741824
"""
FILES = {
    "3.9 with ZooKeeper": """
broker.id=0
log.dirs=/tmp/kafka-logs
num.recovery.threads.per.data.dir=1
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
""",
    "3.9 with KRaft": f"""{KRAFT}
controller.quorum.voters=1@localhost:9093
num.recovery.threads.per.data.dir=1
""",
    "4.4": f"""{KRAFT}
controller.quorum.bootstrap.servers=localhost:9093
num.recovery.threads.per.data.dir=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
""",
}
GONE = {"3.9 with ZooKeeper": ["zookeeper.connect", "zookeeper.connection.timeout.ms"]}


def loaded(tmp_path: Path, text: str) -> BrokerConfig:
    file = tmp_path / "server.properties"
    file.write_text(text)
    config = load_config(str(file))
    config.check_protection()
    return config


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_kafka_ships_is_accepted_and_what_is_gone_is_named(name: str, tmp_path: Path) -> None:
    config = loaded(tmp_path, COMMON + FILES[name])
    assert [(each.name, each.port) for each in config.listeners] == [("PLAINTEXT", 9092)]
    assert config.unknown_names() == []
    with capture_logs() as lines:
        config.warn()
    gone = [line["names"] for line in lines if line["event"] == "settings are gone from Kafka 4"]
    assert gone == ([GONE[name]] if name in GONE else [])


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        ("log.message.timestamp.difference.max.ms=5", "log_message_timestamp_difference_max_ms", 5),
        ("leader.imbalance.per.broker.percentage=3", "leader_imbalance_per_broker_percentage", 3),
        ("controlled.shutdown.max.retries=7", "controlled_shutdown_max_retries", 7),
        ("zookeeper.connect=zk:2181", "zookeeper_connect", "zk:2181"),
    ],
)
def test_a_setting_that_is_gone_keeps_its_effect(line: str, attribute: str, value: object, tmp_path: Path) -> None:
    config = loaded(tmp_path, line)
    assert getattr(config, attribute) == value
    assert config.removed_names() == [line.partition("=")[0]]


def test_one_without_effect_is_named_once_as_gone_and_once_as_idle(tmp_path: Path) -> None:
    config = loaded(tmp_path, "log.message.downconversion.enable=false\ngroup.share.max.groups=5\n")
    assert config.removed_names() == ["group.share.max.groups", "log.message.downconversion.enable"]
    assert config.names_without_effect() == config.removed_names()

"""Clients push their own metrics: librdkafka, and Kafka's own producer and consumer of 4.4 with its own tool."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer

from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.wire_codes import ConfigResourceType
from odradek.testing import BrokerThread
from tests.broker.metrics.test_metrics import samples_of
from tests.patience import PATIENCE_S, block_until
from tests.wire.blocking_client import Client

SETTINGS = {
    "odradek.client.metrics.enable": "true",
    "odradek.metrics.port": "0",
    "group.initial.rebalance.delay.ms": "0",
}
KAFKA = {"KAFKA_VERSION": "4.4.0", "KOPTS": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
TOOLS = "org.apache.kafka.tools"
_Altered = IncrementalAlterConfigsRequest.AlterConfigsResource
_Config = IncrementalAlterConfigsRequest.AlterableConfig


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(SETTINGS, auto_create_topics_enable=True) as broker:
        yield broker


def subscribe(broker: BrokerThread, name: str, **settings: str) -> None:
    configs = [_Config(name=key.replace("_", "."), value=text) for key, text in settings.items()]
    resource = _Altered(resource_type=ConfigResourceType.CLIENT_METRICS, resource_name=name, configs=configs)
    with Client(broker.bootstrap) as client:
        changed = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert changed.responses[0].error_code == 0


def own_metrics(broker: BrokerThread, client_id: str) -> dict[str, float]:
    """What a client has pushed, by name and labels of its own."""
    server = broker.broker.metrics_server
    assert server is not None
    with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE_S) as response:
        samples = samples_of(response.read())
    found = {}
    for (name, labels), value in samples.items():
        own = dict(labels)
        if name.startswith("kafka_client_") and own.pop("client_id") == client_id:
            del own["client_instance_id"]
            found[" ".join([name, *(f"{key}={text}" for key, text in sorted(own.items()))])] = value
    return found


def of_instance(broker: BrokerThread, client_id: str) -> dict[str, str]:
    """What a client has said of itself."""
    telemetry = broker.broker.telemetry
    assert telemetry is not None
    [instance] = [each for each in telemetry.instances if each.values["client_id"] == client_id]
    return dict(instance.attributes)


def is_forgotten(broker: BrokerThread) -> bool:
    telemetry = broker.broker.telemetry
    assert telemetry is not None
    return len(telemetry.instances) == telemetry.series.size == 0


# --- librdkafka -----------------------------------------------------------------------------------------------------


def test_librdkafka_pushes_what_it_is_asked_for_and_is_forgotten_when_it_closes(broker: BrokerThread) -> None:
    subscribe(broker, "producers", metrics="org.apache.kafka.producer.", interval_ms="200", match="client_id=lib")
    subscribe(
        broker,
        "consumers",
        metrics="*",
        interval_ms="200",
        match="client_software_name=confluent-kafka-python,client_id=co",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "lib"})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "client.id": "co", "group.id": "g"})
    consumer.subscribe(["t"])
    unasked = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "unasked"})

    def has_pushed() -> bool:
        producer.produce("t", b"value")
        unasked.produce("t", b"value")
        producer.poll(0.01)
        consumer.poll(0.01)
        found = own_metrics(broker, "lib")
        consumed = own_metrics(broker, "co")
        return (
            found.get("kafka_client_producer_request_latency_avg", 0) > 0
            and "kafka_client_producer_connection_creation_total" in found
            and consumed.get("kafka_client_consumer_coordinator_assigned_partitions", 0) == 1
        )

    block_until(has_pushed)
    assert not [name for name in own_metrics(broker, "lib") if not name.startswith("kafka_client_producer_")]
    assert own_metrics(broker, "unasked") == {}
    assert of_instance(broker, "co")["group_id"] == "g"
    for each in (producer, unasked, consumer):
        each.close()
    block_until(lambda: is_forgotten(broker))


def test_librdkafka_that_may_not_push_does_not(broker: BrokerThread) -> None:
    subscribe(broker, "all", metrics="*", interval_ms="100")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "silent", "enable.metrics.push": False})
    producer.produce("t", b"value")
    producer.flush()
    time.sleep(1)
    assert is_forgotten(broker)


# --- Java -----------------------------------------------------------------------------------------------------------


@contextmanager
def running(control: list[str], tool: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*control, "tool", f"{TOOLS}.{tool}", *arguments],
        env={**os.environ, **KAFKA},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def printed(control: list[str], tool: str, *arguments: str) -> str:
    with running(control, tool, *arguments) as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    return out


def pushed(broker: BrokerThread, client_id: str, wanted: Mapping[str, Callable[[float], bool]]) -> bool:
    found = own_metrics(broker, client_id)
    return all(name in found and is_right(found[name]) for name, is_right in wanted.items())


@pytest.mark.timeout(400)
def test_kafkas_tool_subscribes_to_what_java_clients_push(broker: BrokerThread, kafka_control: list[str]) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    out = printed(
        kafka_control,
        "ClientMetricsCommand",
        *(*server, "--alter", "--name", "java", "--metrics", "*", "--interval", "500"),
        *("--match", "client_software_name=apache-kafka-java"),
    )
    assert "Altered client metrics config for java." in out
    out = printed(kafka_control, "ClientMetricsCommand", *server, "--describe", "--name", "java")
    assert "interval.ms=500" in out
    assert "java" in printed(kafka_control, "ClientMetricsCommand", *server, "--list").split()
    records = ("--topic", "t", "--num-records", "100000", "--record-size", "10", "--throughput", "50")
    properties = (f"bootstrap.servers={broker.bootstrap}", "client.id=producer", "enable.metrics.push=true")
    with running(kafka_control, "ProducerPerformance", *records, "--producer-props", *properties):
        sent = {"kafka_client_producer_topic_record_send_total topic=t": lambda value: value >= 20}
        block_until(lambda: pushed(broker, "producer", sent))
        first = own_metrics(broker, "producer")["kafka_client_producer_record_send_total"]
        block_until(
            lambda: pushed(broker, "producer", {"kafka_client_producer_record_send_total": lambda value: value > first})
        )
        consuming = (*server, "--topic", "t", "--consumer-property", "client.id=consumer", "--group", "g")
        with running(kafka_control, "consumer.ConsoleConsumer", *consuming):
            wanted = {"kafka_client_consumer_coordinator_assigned_partitions": lambda value: value == 1}
            block_until(lambda: pushed(broker, "consumer", wanted))
    block_until(lambda: is_forgotten(broker))
    out = printed(kafka_control, "ClientMetricsCommand", *server, "--delete", "--name", "java")
    assert "Deleted client metrics config for java." in out

"""The shadow group: committed without a member, and never an obstacle to the ingest."""

import contextlib
import dataclasses
import gc
import logging
import socket
import threading
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.kafka.admin import admin_client
from odradek.pipeline.settings import Settings
from odradek.testing import BrokerThread


@pytest.fixture
def pipeline(broker: BrokerThread, orders: Settings, topic: str) -> Settings:
    """A topic of two partitions that exists, and a group that no other test has."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, b"{}").get(10)
    producer.close()
    return dataclasses.replace(orders, shadow_group=f"group-{topic}")


@contextlib.contextmanager
def forwarded(port: int, target: int) -> Iterator[None]:
    """Forwards connections from `port` to `target`, both on loopback."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        client, _ = server.accept()
        with client, socket.create_connection(("127.0.0.1", target)) as upstream:
            back = threading.Thread(target=pump, args=(upstream, client))
            back.start()
            pump(client, upstream)
            back.join()

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        yield
        thread.join()


@pytest.fixture
def closed_port(caplog: pytest.LogCaptureFixture) -> Iterator[int]:
    """A port without a listener. kafka-python does not close refused sockets, and log lines reference them."""
    caplog.set_level(logging.CRITICAL, "kafka")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port
    gc.collect()


def shadow_group_line(logs: list[MutableMapping[str, Any]]) -> MutableMapping[str, Any]:
    """The log line about the shadow group; the broker of this process logs too."""
    (line,) = (line for line in logs if "problems" in line)
    return line


def committed(settings: Settings) -> dict[TopicPartition, int]:
    with admin_client(settings) as admin:
        groups = admin.list_group_offsets({settings.group: None})
    return {partition: each.offset for partition, each in groups[settings.group].items()}


def test_offsets_are_committed_and_go_back_when_a_batch_is_run_again(pipeline: Settings, topic: str) -> None:
    assert shadow_group.commit(pipeline, {topic: {0: 5, 1: 7}})
    assert committed(pipeline) == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 7}
    assert shadow_group.commit(pipeline, {topic: {0: 4}})
    assert committed(pipeline) == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 7}


def test_without_offsets_no_request_is_sent(orders: Settings) -> None:
    assert shadow_group.commit(dataclasses.replace(orders, bootstrap_server="127.0.0.1:1"), {})


def test_a_deleted_topic_is_reported_and_the_others_are_committed(pipeline: Settings, topic: str) -> None:
    pauses: list[float] = []
    with structlog.testing.capture_logs() as logs:
        assert not shadow_group.commit(pipeline, {topic: {0: 5, 9: 1}, "gone": {0: 3}}, sleep=pauses.append)
    assert committed(pipeline) == {TopicPartition(topic, 0): 5}
    assert pauses == list(shadow_group.PAUSES_S)
    line = shadow_group_line(logs)
    assert line["log_level"] == "error"
    assert line["group"] == pipeline.group
    ((reason, partitions),) = line["problems"].items()
    assert "UnknownTopicOrPartition" in reason
    assert sorted(partitions) == ["gone-0", f"{topic}-9"]


def test_a_group_with_members_is_left_alone_and_a_remedy_is_logged(pipeline: Settings, topic: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": pipeline.bootstrap_server, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(topic, group_id=pipeline.group, **options)
    try:
        assert consumer.poll(20_000), "no record, so perhaps no member"
        with structlog.testing.capture_logs() as logs:
            assert not shadow_group.commit(pipeline, {topic: {0: 1}}, pauses_s=())
        assert "the group has members" in next(iter(shadow_group_line(logs)["problems"]))
    finally:
        consumer.close()
    assert shadow_group.commit(pipeline, {topic: {0: 1}})


def test_an_unreachable_broker_costs_bounded_time_and_no_error(orders: Settings, closed_port: int) -> None:
    away = dataclasses.replace(orders, bootstrap_server=f"127.0.0.1:{closed_port}")
    pauses: list[float] = []
    with structlog.testing.capture_logs() as logs:
        assert not shadow_group.commit(away, {"orders": {0: 1}}, patience_ms=200, sleep=pauses.append)
    assert len(pauses) == len(shadow_group.PAUSES_S)
    assert shadow_group_line(logs)["event"] == "shadow group not updated"


def test_an_unreachable_broker_leaves_no_thread_behind(orders: Settings, closed_port: int) -> None:
    away = dataclasses.replace(orders, bootstrap_server=f"127.0.0.1:{closed_port}")
    before = threading.active_count()
    assert not shadow_group.commit(away, {"orders": {0: 1}}, patience_ms=200, pauses_s=())
    assert threading.active_count() == before


def test_a_returning_broker_is_tried_again(pipeline: Settings, topic: str, closed_port: int) -> None:
    port = int(pipeline.bootstrap_server.rpartition(":")[2])
    settings = dataclasses.replace(pipeline, bootstrap_server=f"127.0.0.1:{closed_port}")
    with contextlib.ExitStack() as until_the_end:

        def meanwhile(_pause: float) -> None:
            until_the_end.enter_context(forwarded(closed_port, port))

        assert shadow_group.commit(settings, {topic: {0: 6}}, patience_ms=1000, sleep=meanwhile)
    assert committed(pipeline) == {TopicPartition(topic, 0): 6}

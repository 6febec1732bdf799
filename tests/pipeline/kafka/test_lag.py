"""Lag: the end of each partition minus the processed offset, equal to that of Kafka's tool."""

import contextlib
import dataclasses
import subprocess
from collections.abc import Iterator

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.kafka.admin import admin_client
from odradek.pipeline.kafka.lag import PartitionLag, partition_lags
from odradek.pipeline.settings import Settings
from odradek.testing import BrokerThread


@pytest.fixture
def filled(orders: Settings, topic: str) -> Settings:
    """Seven records in partition 0, three in partition 1, and a group of their own."""
    settings = dataclasses.replace(orders, shadow_group=f"group-{topic}")
    with admin_client(settings) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_server)
    for number in range(10):
        producer.send(topic, str(number).encode(), partition=int(number >= 7))
    producer.close()
    return settings


@contextlib.contextmanager
def transaction(settings: Settings, topic: str, commit: bool) -> Iterator[None]:
    """Two records in partition 0 in a transaction that is open within the block."""
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_server, transactional_id=f"of-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(2):
        producer.send(topic, b"{}", partition=0).get(10)
    yield
    (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()


def lags(settings: Settings, processed: dict[str, dict[int, int]]) -> list[int | None]:
    return [one.lag for one in partition_lags(settings, processed)]


def test_the_lag_is_the_end_minus_the_processed_offset_and_zero_when_idle(filled: Settings, topic: str) -> None:
    assert lags(filled, {topic: {0: 4, 1: 3}}) == [3, 0]
    assert lags(filled, {topic: {0: 7, 1: 3}}) == [0, 0]
    first, _ = partition_lags(filled, {topic: {0: 4, 1: 3}})
    assert first == PartitionLag(topic, 0, 4, log_start_offset=0, end_offset=7, log_end_offset=7)


def test_before_the_first_batch_the_lag_is_every_record(filled: Settings, topic: str) -> None:
    with admin_client(filled) as admin:
        admin.delete_records({TopicPartition(topic, 0): 2})
    assert lags(filled, {}) == [5, 3]


def test_only_topics_that_match_the_pattern_are_found(filled: Settings, topic: str) -> None:
    some = dataclasses.replace(filled, topics=(), topics_pattern=f"{topic[:-1]}.")
    assert [(one.topic, one.partition) for one in partition_lags(some, {})] == [(topic, 0), (topic, 1)]
    strange = dataclasses.replace(filled, topics=(), topics_pattern="(?<possessive>a)*+")
    assert [one.processed for one in partition_lags(strange, {topic: {1: 3}})] == [None, 3]


def test_records_of_an_open_transaction_are_lag_only_for_kafkas_tools(filled: Settings, topic: str) -> None:
    with transaction(filled, topic, commit=True):
        first, _ = partition_lags(filled, {topic: {0: 7, 1: 3}})
        assert (first.lag, first.in_open_transactions) == (0, 2)
        uncommitted = dataclasses.replace(filled, isolation_level="read_uncommitted")
        assert lags(uncommitted, {topic: {0: 7, 1: 3}}) == [2, 0]
    first, _ = partition_lags(filled, {topic: {0: 7, 1: 3}})
    assert (first.lag, first.in_open_transactions) == (3, 0)


def test_an_aborted_transaction_is_lag_until_a_batch_has_passed_over_it(filled: Settings, topic: str) -> None:
    with transaction(filled, topic, commit=False):
        pass
    assert lags(filled, {topic: {0: 7, 1: 3}}) == [3, 0]
    assert lags(filled, {topic: {0: 10, 1: 3}}) == [0, 0]


def test_deleted_and_recreated_topics_and_unread_deletions_are_reported(filled: Settings, topic: str) -> None:
    with admin_client(filled) as admin:
        admin.delete_records({TopicPartition(topic, 0): 6})
    lags = {
        (one.topic, one.partition): (one.lag, one.problem)
        for one in partition_lags(filled, {topic: {0: 4, 1: 9}, f"not-{topic}": {0: 1}})
    }
    assert lags[topic, 0] == (3, "2 offsets were deleted before they were read")
    assert lags[topic, 1] == (0, "processed beyond the end of the log: the topic was deleted and recreated")
    assert lags[f"not-{topic}", 0] == (None, "the topic or the partition was deleted")


def test_a_lag_query_creates_no_topic(orders: Settings, topic: str) -> None:
    assert partition_lags(orders, {topic: {0: 1}})[0].end_offset is None
    with admin_client(orders) as admin:
        assert topic not in admin.list_topics()


def test_an_unreachable_broker_is_an_error(orders: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "kafka")
    with pytest.raises(KafkaError):
        partition_lags(dataclasses.replace(orders, bootstrap_server="127.0.0.1:1"), {}, patience_ms=300)


def test_kafkas_own_tool_prints_the_same_lag_for_the_shadow_group(
    broker: BrokerThread, filled: Settings, topic: str, java_tools: list[str]
) -> None:
    processed = {topic: {0: 4, 1: 3}}
    assert shadow_group.commit(filled, processed)
    with transaction(filled, topic, commit=True):
        open_ = partition_lags(filled, processed)
        assert kafkas_lags(java_tools, filled) == {
            (one.topic, one.partition): (one.committed, one.log_end_offset, (one.lag or 0) + one.in_open_transactions)
            for one in open_
        }
    processed = {topic: {0: 10, 1: 3}}
    assert shadow_group.commit(filled, processed)
    idle = partition_lags(filled, processed)
    assert [one.lag for one in idle] == [0, 0]
    assert kafkas_lags(java_tools, filled) == {
        (one.topic, one.partition): (one.processed, one.end_offset, one.lag) for one in idle
    }


def kafkas_lags(tools: list[str], settings: Settings) -> dict[tuple[str, int], tuple[int, int, int]]:
    """CURRENT-OFFSET, LOG-END-OFFSET and LAG of each partition, as ConsumerGroupCommand prints them."""
    command = [*tools, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    command += ["--bootstrap-server", settings.bootstrap_server, "--describe", "--offsets", "--group", settings.group]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL
    ).stdout
    rows = (line.split() for line in done.splitlines() if line.startswith(settings.group))
    return {(row[1], int(row[2])): (int(row[3]), int(row[4]), int(row[5])) for row in rows}

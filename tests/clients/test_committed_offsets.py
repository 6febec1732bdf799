"""Offsets that one client commits are visible to others; administrators read, change and delete them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.clients.conftest import ClientBroker
from tests.patience import PATIENCE_S

NewTopic = Callable[[int], str]
NONE = confluent_kafka.OFFSET_INVALID


def librdkafkas(bootstrap: str, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "socket.timeout.ms": 10_000}
    )


def kafka_pythons(bootstrap: str, group: str) -> KafkaConsumer:
    return KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)


def test_offsets_that_one_client_commits_are_read_by_another(client_broker: ClientBroker, new_topic: NewTopic) -> None:
    topic, group = new_topic(3), f"g-{uuid4()}"
    python = kafka_pythons(client_broker.bootstrap, group)
    rdkafka = librdkafkas(client_broker.bootstrap, group)
    first = TopicPartition(topic, 0)
    python.assign([first])
    python.commit({first: OffsetAndMetadata(5, "von hier", -1)})
    found = rdkafka.committed([Partition(topic, 0), Partition(topic, 1)], timeout=PATIENCE_S)
    assert [(each.offset, each.error) for each in found] == [(5, None), (NONE, None)]
    # librdkafka's view of the metadata is not checked: the Python binding reads it beyond its end.
    assert python.committed(first, metadata=True).metadata == "von hier"
    rdkafka.commit(offsets=[Partition(topic, 0, 7), Partition(topic, 1, 8)], asynchronous=False)
    assert [python.committed(TopicPartition(topic, each)) for each in range(3)] == [7, 8, None]
    rdkafka.close()
    python.close()


def test_a_commit_for_an_unknown_partition_is_refused_and_the_others_succeed(
    client_broker: ClientBroker, new_topic: NewTopic
) -> None:
    topic, group = new_topic(1), f"g-{uuid4()}"
    consumer = librdkafkas(client_broker.bootstrap, group)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        consumer.commit(offsets=[Partition(topic, 0, 7), Partition(topic, 9, 8)], asynchronous=False)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert consumer.committed([Partition(topic, 0)], timeout=PATIENCE_S)[0].offset == 7
    consumer.close()


def test_administrators_read_change_and_delete_offsets(client_broker: ClientBroker, new_topic: NewTopic) -> None:
    topic, group = new_topic(2), f"g-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": client_broker.bootstrap})

    def offsets() -> dict[int, int]:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return {each.partition: each.offset for each in asked[group].result(10).topic_partitions}

    assert offsets() == {}
    wanted = ConsumerGroupTopicPartitions(group, [Partition(topic, 0, 3), Partition(topic, 1, 4)])
    changed = admin.alter_consumer_group_offsets([wanted])[group].result(10)
    assert all(each.error is None for each in changed.topic_partitions)
    assert offsets() == {0: 3, 1: 4}
    assert group in {each.group_id for each in admin.list_consumer_groups().result(10).valid}
    admin.delete_consumer_groups([group])[group].result(10)
    assert offsets() == {}
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(10).valid}


def test_a_group_resumes_at_its_committed_offsets(client_broker: ClientBroker, new_topic: NewTopic) -> None:
    topic, group = new_topic(1), f"g-{uuid4()}"
    producer = confluent_kafka.Producer({"bootstrap.servers": client_broker.bootstrap})
    for number in range(20):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(10) == 0
    seen = []
    for _ in range(4):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": client_broker.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        for _ in range(5):
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            seen.append(int(message.value() or b""))
            consumer.commit(message=message, asynchronous=False)
        consumer.close()
    assert seen == list(range(20))

"""kafka-python, aiokafka and confluent-kafka writing and reading ``Sent`` records, by assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiokafka
import confluent_kafka
import kafka

from tests.clients.workload import PARTITIONS, Sent
from tests.patience import PATIENCE_S


def kafka_python_produce(
    bootstrap: str, topic: str, records: Iterable[Sent], codec: str, api_version: tuple[int, ...] | None = None
) -> None:
    pinned = {} if api_version is None else {"api_version": api_version}
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        batch_size=65_536,
        acks="all",
        **pinned,
    )
    try:
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(timeout=120)
        for future in sent:
            future.get(timeout=PATIENCE_S)
    finally:
        producer.close()


def kafka_python_consume(
    bootstrap: str, topic: str, count: int, api_version: tuple[int, ...] | None = None
) -> list[Sent]:
    pinned = {} if api_version is None else {"api_version": api_version}
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, **pinned)
    read: list[Sent] = []
    try:
        assigned = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        while len(read) < count:
            polled = consumer.poll(timeout_ms=20_000, max_records=5000)
            assert polled, f"nothing more after {len(read)} of {count} records"
            for messages in polled.values():
                read += [Sent(m.partition, m.timestamp, m.key, m.value, tuple(m.headers)) for m in messages]
    finally:
        consumer.close()
    return read


def aiokafka_produce(bootstrap: str, topic: str, records: Iterable[Sent], codec: str) -> None:
    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            max_batch_size=65_536,
            acks="all",
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await producer.flush()
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(produce())


def aiokafka_consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    async def consume() -> list[Sent]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        await consumer.start()
        read: list[Sent] = []
        try:
            assigned = [aiokafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            while len(read) < count:
                polled = await consumer.getmany(timeout_ms=20_000, max_records=5000)
                assert polled, f"nothing more after {len(read)} of {count} records"
                for messages in polled.values():
                    read += [Sent(m.partition, m.timestamp, m.key, m.value, tuple(m.headers)) for m in messages]
        finally:
            await consumer.stop()
        return read

    return asyncio.run(consume())


def confluent_produce(bootstrap: str, topic: str, records: Iterable[Sent], codec: str) -> None:
    failures: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp=record.timestamp_ms,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failures, failures[:3]


def sent_of(message: confluent_kafka.Message) -> Sent:
    partition, headers = message.partition(), message.headers() or []
    assert partition is not None
    assert isinstance(headers, list)
    pairs = tuple((name, value) for name, value in headers if not isinstance(value, str))
    return Sent(partition, message.timestamp()[1], message.key(), message.value(), pairs)


def confluent_consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        return [sent_of(message) for message in confluent_messages(consumer, count)]
    finally:
        consumer.close()


def confluent_messages(consumer: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
    """The next ``count`` messages of an assigned consumer; fails after 20 s without a message."""
    messages: list[confluent_kafka.Message] = []
    while len(messages) < count:
        first = consumer.poll(20)
        assert first is not None, f"nothing more after {len(messages)} of {count} records"
        polled = [first, *consumer.consume(min(5000, count - len(messages)), timeout=0)]
        for message in polled:
            assert message.error() is None, message.error()
        messages += polled
    return messages

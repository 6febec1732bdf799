"""Reads partition 0 of each topic to its end with librdkafka: librdkafka_reader BOOTSTRAP TOPIC... (see readers.py)."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.clients.bodies.readers import checksum

SILENCE_S = 10


def main(bootstrap: str, topics: Sequence[str]) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 0})
    for topic in topics:
        read(consumer, topic)
    consumer.close()


def read(consumer: confluent_kafka.Consumer, topic: str) -> None:
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SILENCE_S)
    position, silent_since = 0, time.monotonic()
    consumer.assign([TopicPartition(topic, 0, position)])
    while position < end:
        failure = "nothing comes" if time.monotonic() > silent_since + SILENCE_S else None
        for message in consumer.consume(1000, timeout=0.1):
            silent_since = time.monotonic()
            if error := message.error():
                failure = error.str()
                break
            position = noted(message)
        if failure is not None:
            print(topic, position, "!", failure.replace("\n", " "), flush=True)
            position, silent_since = position + 1, time.monotonic()
            consumer.seek(TopicPartition(topic, 0, position))


def noted(message: confluent_kafka.Message) -> int:
    """Prints a record; returns the offset behind it."""
    offset = message.offset()
    assert offset is not None
    print(message.topic(), offset, checksum(message.key(), message.value()), flush=True)
    return offset + 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

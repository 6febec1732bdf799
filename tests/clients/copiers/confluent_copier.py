"""Copies a topic to another in transactions, by confluent-kafka, until it is killed.

    python -m tests.clients.copiers.confluent_copier BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID [PROTOCOL]

PROTOCOL: of the group, classic or consumer.
Each batch is consumed, transformed (`copy of ` before the value), produced to the same partition and committed
together with its offsets. It prints `committed` after each transaction.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

BATCH, POLL_S = 100, 0.2


class Copier:
    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, transactional_id: str, protocol: str = "classic"
    ) -> None:
        self.source, self.target = source, target
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",  # "rebootstrap" loses requests that wait for a retry
        }
        self.consumer = Consumer(
            common
            | ({"session.timeout.ms": 15_000} if protocol == "classic" else {})
            | {
                "group.id": group,
                "group.protocol": protocol,
                "group.instance.id": transactional_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.producer = Producer(
            common | {"transactional.id": transactional_id, "transaction.timeout.ms": 10_000, "linger.ms": 2}
        )

    def run(self) -> None:
        self.producer.init_transactions(30)
        self.consumer.subscribe([self.source])
        while True:
            messages = self._next()
            if messages:
                try:
                    self._copy(messages)
                    print("committed", len(messages), flush=True)
                except KafkaException as failure:
                    self._abort(failure.args[0])

    def _next(self) -> list[Message]:
        messages = []
        for message in self.consumer.consume(BATCH, POLL_S):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.fatal():
                raise KafkaException(error)
        return messages

    def _copy(self, messages: list[Message]) -> None:
        self.producer.begin_transaction()
        after: dict[int, int] = {}
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            self.producer.produce(self.target, b"copy of " + value, partition=partition)
            after[partition] = offset + 1
        offsets = [TopicPartition(self.source, *pair) for pair in after.items()]
        self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), 30)
        while True:
            try:
                self.producer.commit_transaction(30)
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return

    def _abort(self, error: KafkaError) -> None:
        """Aborts, and seeks to the group's last committed offsets."""
        print("abort", error, flush=True)
        if not error.txn_requires_abort():
            raise KafkaException(error)
        while True:
            try:
                self.producer.abort_transaction(30)
                break
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
        assigned = self.consumer.assignment()
        for partition in self.consumer.committed(assigned, 30):
            self.consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))


if __name__ == "__main__":
    Copier(*sys.argv[1:]).run()

"""An idempotent, acks=all producer of 0, 1, 2, ... that survives its broker, and a reader of its topic."""

from __future__ import annotations

import threading

import confluent_kafka

from tests.clients.python_clients import confluent_messages
from tests.patience import PATIENCE_S

TOPIC = "numbers"


class NumberedProducer:
    """Writes 0, 1, 2, ... from a thread until `finish`; records the acknowledged numbers."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="numbered producer")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) < 2000:
                self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.0005)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        if error is None:
            self.acknowledged.append(int(value))
        else:
            self.failures.append(str(error))

    def finish(self) -> None:
        """Waits until everything is acknowledged."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(120) == 0


def read_all(bootstrap: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    partition = confluent_kafka.TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    consumer.assign([partition])
    numbers = [int(message.value() or b"") for message in confluent_messages(consumer, end)]
    consumer.close()
    return numbers

"""kill -9 of the broker in a loop under an idempotent, acks=all producer with a flush after each append."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.scenarios.numbered_producer import NumberedProducer, read_all
from tests.soak import rounds
from tests.spawned_broker import SpawnedBroker, free_port, start_broker

ROUNDS = rounds(3, in_soak=25)


@pytest.mark.long
@pytest.mark.soak("25 kills while a producer writes", minutes=1)
@pytest.mark.timeout(600)
def test_no_acknowledged_record_is_lost_or_duplicated_after_kill_9(tmp_path: Path) -> None:
    source, port = random.Random(9), free_port()
    settings = {"log.flush.interval.messages": "1", "log.segment.bytes": "262144", "num.partitions": "1"}

    def start() -> SpawnedBroker:
        return start_broker(tmp_path / "data", settings, port=port)

    broker = start()
    producer = NumberedProducer(broker.bootstrap)
    try:
        for _ in range(ROUNDS):
            seen = len(producer.acknowledged)
            threading.Event().wait(0.2 + source.random())
            while len(producer.acknowledged) == seen:
                threading.Event().wait(0.05)
            broker.kill()
            broker.close()
            broker = start()
    finally:
        producer.finish()
    try:
        assert not producer.failures, producer.failures[:3]
        read = read_all(broker.bootstrap)
        assert read == list(range(len(read))), "in order, each once, none left out"
        assert set(producer.acknowledged) <= set(read)
        assert broker.terminate() == 0
    finally:
        broker.kill()
        broker.close()

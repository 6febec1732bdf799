"""A producer with acks=all on librdkafka, in a process of its own.

    python -m benchmarks.acknowledged BOOTSTRAP TOPIC RECORDS RECORDS_PER_SECOND [--config FILE]

FILE has settings of librdkafka, as JSON.
Sends records of 1,000 bytes to partition 0, at the given rate, or at full speed if that is 0. A fifth of RECORDS more
are the warm-up, after which it prints "measuring". At the end it prints one JSON object: the seconds from the first
record to the last acknowledgement, and the percentiles of the time from `produce` to the acknowledgement, in
microseconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

RECORD = bytes(range(256)) * 3 + bytes(232)
SETTINGS = {
    "acks": "all",
    "linger.ms": 0,
    "batch.size": 16_384,
    "socket.nagle.disable": True,
    "queue.buffering.max.messages": 5_000,
}
"""The batches of Kafka's defaults. A short queue, so that latency at full speed is not that of the queue."""
FLUSH_S = 60
BEHIND_S = 0.0005


class Load:
    """Sends records and keeps the latencies of their acknowledgements."""

    def __init__(self, bootstrap: str, topic: str, rate: int, config: dict[str, Any]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS, **config})
        self._topic = topic
        self._rate = rate
        self.latencies_us: list[float] = []

    def send(self, records: int) -> float:
        """Returns the seconds until the last acknowledgement. Raises RuntimeError if a record has none."""
        self.latencies_us.clear()
        begin = time.perf_counter()
        for number in range(records):
            if self._rate:
                self._wait(begin + number / self._rate)
            self._produce()
        self._producer.flush(FLUSH_S)
        if len(self.latencies_us) < records:
            raise RuntimeError(f"{records - len(self.latencies_us)} of {records} records were not acknowledged")
        return time.perf_counter() - begin

    def _wait(self, due: float) -> None:
        while (early := due - time.perf_counter()) > 0:
            self._producer.poll(early if early > BEHIND_S else 0)

    def _produce(self) -> None:
        while True:
            try:
                self._producer.produce(self._topic, RECORD, partition=0, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.01)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        latency_s = message.latency()
        if error is None and latency_s is not None:
            self.latencies_us.append(latency_s * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acknowledged")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("records", type=int)
    parser.add_argument("rate", type=int)
    parser.add_argument("--config", type=Path)
    arguments = parser.parse_args()
    config = {} if arguments.config is None else json.loads(arguments.config.read_text())
    gc.disable()
    load = Load(arguments.bootstrap, arguments.topic, arguments.rate, config)
    load.send(max(arguments.records // 5, 1))
    print("measuring", flush=True)
    seconds = load.send(arguments.records)
    took = sorted(load.latencies_us)
    quantiles = {name: took[int(len(took) * part)] for name, part in (("p50_us", 0.5), ("p99_us", 0.99))}
    print(json.dumps({"seconds": seconds, "bytes": len(RECORD) * arguments.records, **quantiles}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

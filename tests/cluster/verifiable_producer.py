"""An idempotent Java producer that writes through faults: Kafka's own VerifiableProducer, as a process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clients.transactions import read_committed
from tests.patience import block_until
from tests.sequences import assert_same

SETTINGS = {
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "1",
    "retries": "2147483647",
    "delivery.timeout.ms": "300000",
    "request.timeout.ms": "4000",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "100",
    "metadata.max.age.ms": "2000",
    "linger.ms": "2",
}
"""The tool itself would not try anything twice. It has one request in flight: if several wait for a leader that is cut
off, and the client hears of the next leader meanwhile, it sends that one new batches, and later those that waited. They
have been replicated, but a leader knows a producer's last five batches only, and refuses older ones, as in Kafka.
"""
JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
END_S = 60


class VerifiableProducer:
    """Writes 0, 1, 2, ... to a topic, whose partitions the client chooses, until `finish`."""

    def __init__(
        self,
        tools: Sequence[str],
        bootstrap: str,
        topic: str,
        partitions: int,
        per_second: int,
        directory: Path,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """`security`: properties of how it connects, if not in plain text."""
        self.topic, self.partitions = topic, partitions
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """The offset and the number of each record, by partition, in the order of the acknowledgements."""
        self.failures: list[str] = []
        self._count = 0
        config, self._log = directory / f"{topic}.properties", directory / f"{topic}-producer.log"
        config.write_text("".join(f"{name}={text}\n" for name, text in {**SETTINGS, **(security or {})}.items()))
        command = [*tools, "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", bootstrap]
        command += ["--topic", topic, "--acks", "-1", "--throughput", str(per_second)]
        command += ["--producer.config", str(config)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "KOPTS": JVM}
            )
        self._reader = threading.Thread(target=self._read, name="verifiable producer")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said(line)

    def _said(self, line: str) -> None:
        with contextlib.suppress(ValueError):  # what the client logs
            event = json.loads(line)
            if event.get("name") == "producer_send_success":
                self.acknowledged[event["partition"]].append((event["offset"], int(event["value"])))
                self._count += 1
            elif event.get("name") == "producer_send_error":
                self.failures.append(line)

    def until_acknowledged(self, more: int = 50) -> None:
        """Waits until `more` records are acknowledged from now on."""
        wanted = self._count + more
        block_until(lambda: self._count >= wanted or self._has_ended())

    def _has_ended(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"the producer has ended: {self._log.read_text()[-2000:]}")
        return False

    def finish(self) -> None:
        """SIGTERM: it ends when all that it has sent is acknowledged."""
        self._process.terminate()
        self._process.wait(END_S)
        self._reader.join(END_S)
        assert not self.failures, self.failures[:3]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait(END_S)
        self._reader.join(END_S)

    def assert_written_once_and_in_order(self, bootstrap: str, security: Mapping[str, object] | None = None) -> None:
        """Reads the topic: all that was acknowledged is there, at its offset, once and in the order of the numbers."""
        read = read_committed(bootstrap, self.topic, self.partitions, security)
        for partition in range(self.partitions):
            numbers = [int(value) for value in read[partition]]
            assert_same(numbers, sorted(set(numbers)), f"{self.topic}-{partition} doubled or out of order")
            acknowledged = self.acknowledged[partition]
            assert_same(
                numbers, [number for _, number in sorted(acknowledged)], f"{self.topic}-{partition}, acknowledged"
            )
            for offset, number in acknowledged:
                assert numbers[offset] == number, f"{number} was acknowledged at {offset}"

"""Runs Kafka's own tools against a broker, step by step, and keeps what each prints for a comparison.

The broker has one partition in each internal topic, and the id 1. The tools for groups, transactions and topics are
compared on a cluster: tests/cluster/kafka_tools.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = "kafka.tools.DumpLogSegments"
TOOL_TIMEOUT_S = 120
WORDS = 60
"""Records of the topic `words`, in two partitions."""


@dataclass(slots=True)
class Script:
    """One broker. `outputs` is what each step printed, by its sentence."""

    bootstrap: str
    data_dir: Path
    tools: list[str]
    outputs: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        self._begin()
        self._consume()
        self._transactions()
        self._verifiable()
        self._dumps()

    def tool(self, sentence: str, name: str, *arguments: str, at: str | None = "--bootstrap-server") -> str:
        where = [at, self.bootstrap] if at else []
        done = subprocess.run(
            [*self.tools, name, *where, *arguments],
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
            env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        )
        errors = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("Picked up JAVA_TOOL"))
        self.outputs[sentence] = f"{done.stdout}--- stderr\n{errors}--- status {done.returncode}\n"
        return done.stdout

    def _begin(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [NewTopic("words", 2, 1), NewTopic("sums", 1, 1), NewTopic("verified", 1, 1), NewTopic("trips", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result(20)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50})
        for number in range(WORDS):
            producer.produce("words", f"word {number}", f"key {number}", partition=number % 2)
        assert producer.flush(20) == 0

    def _consume(self) -> None:
        self.tool(
            "ConsumerPerformance reads all with a group",
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--topic", "words", "--messages", str(WORDS), "--group", "measuring", "--timeout", "20000"),
        )
        self.tool(
            "EndToEndLatency sends and waits",
            "org.apache.kafka.tools.EndToEndLatency",
            *(self.bootstrap, "trips", "50", "all", "10"),
            at=None,
        )

    def _transactions(self) -> None:
        self._write_sums("sums-aborted", range(5), lambda producer: producer.abort_transaction(20))
        self._write_sums("sums-committed", range(5, 12), lambda producer: producer.commit_transaction(20))
        self._write_sums("sums-later", range(12, 14), lambda producer: producer.commit_transaction(20))
        self.tool(
            "a read_committed console consumer reads what was committed",
            CONSOLE_CONSUMER,
            *("--topic", "sums", "--from-beginning", "--isolation-level", "read_committed", "--max-messages", "9"),
            *("--group", "adding", "--property", "print.offset=true", "--property", "print.key=true"),
        )

    def _write_sums(self, name: str, numbers: range, end: Callable[[confluent_kafka.Producer], None]) -> None:
        """Writes these numbers in a transaction that also sends an offset."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in numbers:
            producer.produce("sums", f"{number}", f"{number * number}", partition=0)
        assert producer.flush(20) == 0
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "summing"})
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("words", 0, numbers.stop)], metadata, 20)
        end(producer)
        consumer.close()

    def _verifiable(self) -> None:
        self.tool(
            "VerifiableProducer writes",
            "org.apache.kafka.tools.VerifiableProducer",
            *("--topic", "verified", "--max-messages", "30", "--acks", "-1", "--throughput", "-1"),
        )
        self.tool(
            "VerifiableConsumer reads with a group",
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--topic", "verified", "--max-messages", "30", "--group-id", "verifying", "--verbose"),
            *("--reset-policy", "earliest", "--group-instance-id", "verifier"),
        )

    def _dumps(self) -> None:
        for sentence, topic, decoder in (
            ("DumpLogSegments decodes offsets and groups", "__consumer_offsets", "--offsets-decoder"),
            ("DumpLogSegments decodes transactions", "__transaction_state", "--transaction-log-decoder"),
        ):
            file = self.data_dir / f"{topic}-0" / f"{0:020}.log"
            self.tool(sentence, DUMP, decoder, "--files", str(file), at=None)

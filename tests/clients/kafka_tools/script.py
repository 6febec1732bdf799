"""Runs Kafka's own tools against a broker, step by step, and keeps what each prints for a comparison.

The broker has one partition in each internal topic, and the id 1.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.members.watch import Watch, until

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
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
        self._groups_at_work()
        self._groups_at_rest()
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

    @contextmanager
    def _member(self, group: str) -> Iterator[None]:
        """A consumer that has all partitions of `words` and has read and committed a part of them."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "client.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
            }
        )
        consumer.subscribe(["words"])
        until(lambda: consumer.consume(1, 1), bool, "record")
        consumer.commit(
            offsets=[TopicPartition("words", partition, 10 + partition) for partition in range(2)], asynchronous=False
        )
        stop = threading.Event()

        def keep_polling() -> None:
            while not stop.is_set():
                consumer.poll(0.1)

        thread = threading.Thread(target=keep_polling)
        thread.start()
        Watch(self.bootstrap, group, "words", 2).until_stable(1)
        try:
            yield
        finally:
            stop.set()
            thread.join(10)
            consumer.close()

    def _groups_at_work(self) -> None:
        with self._member("reading"):
            self._group("list groups", "--list")
            self._group("list groups with states", "--list", "--state")
            self._group("list groups that are stable", "--list", "--state", "stable")
            self._group("describe the offsets of a group at work", "--describe", "--group", "reading")
            self._group("describe the members", "--describe", "--group", "reading", "--members", "--verbose")
            self._group("describe the state", "--describe", "--group", "reading", "--state")
            reset = ("--reset-offsets", "--group", "reading", "--topic", "words")
            self._group("reset the offsets of a group at work", *reset, "--to-earliest", "--execute")
            self._group("delete a group at work", "--delete", "--group", "reading")
            self._group(
                "delete offsets of a topic that is read", "--delete-offsets", "--group", "reading", "--topic", "words"
            )

    def _groups_at_rest(self) -> None:
        reset = ("--reset-offsets", "--group", "reading", "--topic")
        self._group("describe an empty group", "--describe", "--group", "reading")
        self._group("describe the state of an empty group", "--describe", "--group", "reading", "--state")
        self._group("describe the members of an empty group", "--describe", "--group", "reading", "--members")
        self._group("describe a group that is not there", "--describe", "--group", "nobody")
        self._group("say what a reset to the beginning would do", *reset, "words", "--to-earliest", "--dry-run")
        self._group("reset by a shift", *reset, "words:1", "--shift-by", "-3", "--execute")
        self._group("reset to an offset beyond the end", *reset, "words:0", "--to-offset", "1000", "--execute")
        self._group("reset to the end", *reset, "words", "--to-latest", "--execute")
        self._group("describe after the resets", "--describe", "--group", "reading")
        self._group(
            "delete the offsets of one partition", "--delete-offsets", "--group", "reading", "--topic", "words:0"
        )
        self._group("describe all groups", "--describe", "--all-groups", "--offsets")
        self._group("delete a group and one that is not there", "--delete", "--group", "reading", "--group", "nobody")
        self._group("list groups after a deletion", "--list")

    def _group(self, sentence: str, *arguments: str) -> None:
        self.tool(sentence, GROUP_COMMAND, *arguments)

    def _transactions(self) -> None:
        self._write_sums("sums-aborted", range(5), lambda producer: producer.abort_transaction(20))
        self._write_sums("sums-committed", range(5, 12), lambda producer: producer.commit_transaction(20))
        producer = self._write_sums("sums-open", range(12, 14), lambda _: None)
        listed = self._transaction("list transactions", "list")
        self._transaction("describe a transaction that is open", "describe", "--transactional-id", "sums-open")
        self._transaction("describe a transaction that is not there", "describe", "--transactional-id", "nobody")
        self._transaction("describe the producers", "describe-producers", "--topic", "sums", "--partition", "0")
        self._transaction("find hanging transactions", "find-hanging", "--broker-id", "1")
        hanging = self._write_sums("sums-hanging", range(14, 15), lambda _: None)
        abort = ("abort", "--topic", "sums", "--partition", "0", "--start-offset")
        self._transaction("abort a transaction that does not begin there", *abort, "15")
        self._transaction("abort a transaction that is open", *abort, "16")
        self._transaction(
            "describe the producers after that", "describe-producers", "--topic", "sums", "--partition", "0"
        )
        hanging.abort_transaction(20)
        producer.commit_transaction(20)
        assert "sums-open" in listed
        self._transaction("describe a transaction that is complete", "describe", "--transactional-id", "sums-open")
        self.tool(
            "a read_committed console consumer reads what was committed",
            CONSOLE_CONSUMER,
            *("--topic", "sums", "--from-beginning", "--isolation-level", "read_committed", "--max-messages", "9"),
            *("--group", "adding", "--property", "print.offset=true", "--property", "print.key=true"),
        )

    def _transaction(self, sentence: str, *arguments: str) -> str:
        return self.tool(sentence, TRANSACTIONS_COMMAND, *arguments)

    def _write_sums(
        self, name: str, numbers: range, end: Callable[[confluent_kafka.Producer], None]
    ) -> confluent_kafka.Producer:
        """Writes these numbers in a transaction that also sends an offset."""
        # Tools run while the transaction is open; on a slow machine they take longer than the default of a minute.
        long = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **long})
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
        return producer

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

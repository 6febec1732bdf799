"""All that uses a cluster while it fails: idempotent producers of librdkafka and of Java, a group of consumers, and a
copier in transactions. Every acknowledged record is read once and in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.clients.members.crew import Crew, Programs
from tests.clients.members.watch import Watch
from tests.clients.test_rebalance import assert_all_is_processed, until_all_work
from tests.clients.transactions import CopierProcess, Numbers, read_committed, until_no_transaction_is_open
from tests.cluster.cluster import TRANSACTION, Cluster
from tests.cluster.verifiable_producer import VerifiableProducer
from tests.cluster.writer import ONE_IN_FLIGHT, Writer
from tests.sequences import assert_same

PARTITIONS = 4
NUMBERS, JAVA, FROM, TO = "numbers", "java", "from", "to"
GROUP, COPIERS, TRANSACTIONAL_ID = "crew", "copiers", "copier"
KINDS = ("aiokafka", "confluent")
"""The members of the group, which reads `numbers`. A member of kafka-python 3.0.12 may believe for ever that it has
joined when its metadata change while it joins: it sends no heartbeat, and reads nothing.
"""
PER_SECOND = 300
"""For each of the three producers."""
IMPATIENT = {
    "request.timeout.ms": 4000,
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 1000,
}
"""A leader without ZooKeeper still believes that it leads: its clients find the new one when they ask another broker,
which librdkafka does every five minutes by default.
"""


class Load:
    """Started by `load_on`. The topics are there, and led by their preferred leaders."""

    def __init__(self, cluster: Cluster, directory: Path, java_tools: list[str], java_programs: list[str]) -> None:
        self._cluster = cluster
        bootstrap = cluster.bootstrap
        self.writer = Writer(bootstrap, NUMBERS, PARTITIONS, PER_SECOND, settings=IMPATIENT)
        self.java = VerifiableProducer(java_tools, bootstrap, JAVA, PARTITIONS, PER_SECOND, directory)
        self._numbers = Numbers(bootstrap, FROM, PARTITIONS, PER_SECOND, ONE_IN_FLIGHT)
        programs = Programs(java_tools, java_programs, Path())
        self.crew = Crew(bootstrap, GROUP, NUMBERS, "range", programs, directory / "members.log")
        for kind in KINDS:
            self.crew.start(kind)
        command = [*java_programs, "odradek.Copier", bootstrap, FROM, TO, COPIERS, TRANSACTIONAL_ID]
        self.copier = CopierProcess(command, directory / "copier.log")
        self.copier.start()
        Watch(bootstrap, GROUP, NUMBERS, PARTITIONS).until_stable(len(KINDS))

    def until_all_work(self) -> None:
        """Waits until each of them gets on, from now on."""
        self.writer.until_acknowledged(20)
        self.java.until_acknowledged(20)
        until_all_work(self.crew.all)
        self.copier.until_it_works()

    def finish(self) -> None:
        """Ends the writing, waits until all is read, and judges it."""
        bootstrap = self._cluster.bootstrap
        self.writer.finish()
        self.java.finish()
        copied = self._numbers.finish()
        self._cluster.until_whole()
        self.writer.assert_written_once_and_in_order(bootstrap)
        self.java.assert_written_once_and_in_order(bootstrap)
        watch = Watch(bootstrap, GROUP, NUMBERS, PARTITIONS)
        watch.until_all_is_committed()
        for member in self.crew.all:
            member.leave()
        assert_all_is_processed(self.crew, watch.ends())
        self._assert_copied(copied)
        self.copier.kill()

    def _assert_copied(self, count: int) -> None:
        bootstrap = self._cluster.bootstrap
        Watch(bootstrap, COPIERS, FROM, PARTITIONS).until_all_is_committed()
        until_no_transaction_is_open(bootstrap, TO, PARTITIONS)
        read = read_committed(bootstrap, TO, PARTITIONS)
        for partition in range(PARTITIONS):
            wanted = [f"copy of {value}" for value in range(partition, count, PARTITIONS)]
            assert_same(read[partition], wanted)

    def summary(self) -> str:
        """How much there was."""
        java = sum(map(len, self.java.acknowledged.values()))
        return (
            f"{self.writer.count * PARTITIONS} records of librdkafka, {java} of Java, "
            f"{len(self.crew.heard)} read by the group, {len(self.copier.committed())} transactions"
        )

    def close(self) -> None:
        """Ends all processes and threads, and shows what they have said."""
        self.writer.stop()
        self._numbers.stop()
        self.java.close()
        self.crew.end()
        with contextlib.suppress(AssertionError):
            self.copier.kill()
        for member in self.crew.all:
            print(member.kind, len(member.records), member.events[-20:])
        print(self.copier.lines[-20:])


@contextlib.contextmanager
def load_on(cluster: Cluster, directory: Path, java_tools: list[str], java_programs: list[str]) -> Iterator[Load]:
    """Uses a cluster meanwhile. In the end all that was acknowledged has been read once and in order."""
    for topic in (NUMBERS, JAVA, FROM, TO):
        cluster.create_topic(topic, PARTITIONS)
    cluster.until_coordinator(GROUP)
    cluster.until_coordinator(TRANSACTIONAL_ID, TRANSACTION)
    cluster.until_whole()
    load = Load(cluster, directory, java_tools, java_programs)
    try:
        load.until_all_work()
        yield load
        load.until_all_work()
        load.finish()
        print(load.summary())
    finally:
        load.close()

"""Rows of three brokers: acks=all, a thousand partitions of three replicas, failover, a follower's visits.

The brokers are processes (benchmarks.clusters) on a ZooKeeper with a session time-out of six seconds. After a kill,
nothing happens before the session has ended, which ZooKeeper counts from the last ping, in ticks: so the time until the
broker's entry has vanished is taken off.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from benchmarks import wire
from benchmarks.clusters import BROKERS, SESSION_TIMEOUT_MS, Cluster, cluster_like
from benchmarks.contestants import Contestant, Odradek
from benchmarks.departure import departure_of
from benchmarks.kafka_versions import version_with_zookeeper
from benchmarks.measurement import LESS, MORE, Metric, Reading, Row, TakesNoPart
from benchmarks.processes import cpu_seconds, resident_bytes
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.protocol.messages.metadata import MetadataResponse
from odradek.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.protocol.schema import Message

MEGABYTE = 1024 * 1024
TOPIC = "replicated"
LIST_OFFSETS_VERSION = 4
LATEST = -1
GIVE_UP_S = 180
PAUSE_S = 0.02
SETTLE_S = 5
WARM_S = 60
WARM_PARTITIONS = 50

Leaders = dict[int, int]
"""The leader of each partition."""


class ClusterRow(Row):
    """A row of three brokers on ZooKeeper."""

    def kafka_version(self) -> str:
        """See Row."""
        return version_with_zookeeper()


class ReplicatedProduce(ClusterRow):
    """One producer with acks=all (benchmarks.acknowledged) into one partition of three replicas, and of one to compare.

    The CPU time is that of all three brokers.
    """

    name = "cluster acks=all"
    needs_fresh_broker = True
    needs_warm_memory = True
    rate = 1000
    """Records per second when the latency is measured."""

    def __init__(self, records: int, paced: int, warm_s: float = 0) -> None:
        """`paced`: how many records measure the latency. `warm_s`: how long the brokers are loaded before."""
        self.records = records
        self.paced = paced
        self.warm_s = warm_s
        self.metrics = (
            Metric("3 brokers, 1 KB acks=all", "MB/s", MORE),
            Metric("3 brokers, 1 KB acks=all: CPU of the leader", "us/record", LESS),
            Metric("3 brokers, 1 KB acks=all, 1,000/s: p50", "us", LESS),
            Metric("3 brokers, 1 KB acks=all, 1,000/s: p99", "us", LESS),
            Metric("3 brokers, 1 KB acks=all, one replica", "MB/s", MORE, None),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        with cluster_like(contestant) as cluster:
            cluster.start()
            create_topic(cluster, TOPIC, 1)
            create_topic(cluster, "single", 1, replicas=1)
            warm = time.perf_counter() + self.warm_s
            while time.perf_counter() < warm:
                self._load(cluster, TOPIC, self.records, 0)
            fast, leader_s = self._load(cluster, TOPIC, self.records, 0)
            paced, _ = self._load(cluster, TOPIC, self.paced, self.rate)
            single, _ = self._load(cluster, "single", self.records, 0)
        readings = (
            fast["MB/s"],
            Reading(leader_s * 1e6 / self.records),
            paced["p50_us"],
            paced["p99_us"],
            single["MB/s"],
        )
        return {metric.name: reading for metric, reading in zip(self.metrics, readings, strict=True)}

    def _load(self, cluster: Cluster, topic: str, records: int, rate: int) -> tuple[dict[str, Reading], float]:
        """Returns readings by their units or percentiles, and the CPU time of the leader."""
        shown = until(cluster, lambda answer: leaders_in(answer).get(0) in cluster.pids, topic)
        leader = cluster.pids[leaders_in(shown)[0]]
        arguments = (cluster.bootstrap, topic, str(records), str(rate))
        command = [sys.executable, "-m", "benchmarks.acknowledged", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            client.stdout.readline()
            before = {pid: cpu_seconds(pid) for pid in cluster.pids.values()}
            line = client.stdout.readline()
            used = {pid: cpu_seconds(pid) - earlier for pid, earlier in before.items()}
        if not line:
            raise RuntimeError("the producer failed")
        done = json.loads(line)
        values = {
            "MB/s": done["bytes"] / MEGABYTE / done["seconds"],
            "p50_us": done["p50_us"],
            "p99_us": done["p99_us"],
        }
        total = sum(used.values())
        return {name: Reading(value, total, done["seconds"], records) for name, value in values.items()}, used[leader]


class ThousandPartitions(ClusterRow):
    """Three brokers with partitions of three replicas: creating them, idling, two kills, and the start with them.

    A partition is served when its leader, as the live brokers name it, answers ListOffsets.
    """

    name = "cluster partitions"
    needs_fresh_broker = True

    def __init__(
        self,
        partitions: int = 1000,
        idle_s: float = 20,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        warm_s: float = 0,
    ) -> None:
        """`warm_s`: how long topics are created and deleted before."""
        self.partitions = partitions
        self.idle_s = idle_s
        self.session_timeout_ms = session_timeout_ms
        self.warm_s = warm_s
        beginning = f"3 brokers, {partitions:,d} partitions"
        self.metrics = (
            Metric(f"{beginning}: create them", "s", LESS),
            Metric(f"{beginning}: CPU of a broker while idle", "ms/s", LESS),
            Metric(f"{beginning}: memory of a broker while idle", "MB", LESS),
            Metric(f"{beginning}: kill a broker, until its entry has vanished", "s", LESS, None),
            Metric(f"{beginning}: from then until all are led", "s", LESS),
            Metric(f"{beginning}: from then until all are served", "s", LESS),
            Metric(f"{beginning}: start it again, until all are in sync", "s", LESS),
            Metric(f"{beginning}: kill the controller, until its entry has vanished", "s", LESS, None),
            Metric(f"{beginning}: from then until a topic is created", "s", LESS),
            Metric(f"{beginning}: start all brokers, until all are in sync", "s", LESS),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        with cluster_like(contestant, self.session_timeout_ms) as cluster:
            cluster.start()
            self._warm_up(cluster)
            readings = [
                Reading(self._created(cluster)),
                *self._idle(cluster),
                *map(Reading, self._failover(cluster)),
                *map(Reading, self._controller_failover(cluster)),
                Reading(self._started(cluster)),
            ]
        return {metric.name: reading for metric, reading in zip(self.metrics, readings, strict=True)}

    def _created(self, cluster: Cluster) -> float:
        begin = time.perf_counter()
        create_topic(cluster, TOPIC, self.partitions)
        until_in_sync(cluster, self.partitions)
        return time.perf_counter() - begin

    def _warm_up(self, cluster: Cluster) -> None:
        """Each topic has a name of its own: Kafka deletes a topic some time after it has said so. Its files go at once,
        and not while the idle brokers are measured."""
        end = time.perf_counter() + self.warm_s
        for name in map("warm-{}".format, itertools.count()):
            if time.perf_counter() > end:
                break
            create_topic(cluster, name, WARM_PARTITIONS)
            wire.delete_topic(cluster.ports[controller(cluster)], name)

    def _idle(self, cluster: Cluster) -> tuple[Reading, Reading]:
        """CPU and memory of the brokers that use most."""
        time.sleep(SETTLE_S)
        before = {pid: cpu_seconds(pid) for pid in cluster.pids.values()}
        time.sleep(self.idle_s)
        used_s = max(cpu_seconds(pid) - used for pid, used in before.items())
        return Reading(used_s * 1000 / self.idle_s), Reading(max(map(resident_bytes, before)) / MEGABYTE)

    def _failover(self, cluster: Cluster) -> tuple[float, float, float, float]:
        """Kills a broker that is not the controller. Returns when its entry vanishes, all are led, served, in sync."""
        victim = next(broker_id for broker_id in BROKERS if broker_id != controller(cluster))
        with departure_of(victim, cluster.zookeeper) as departure:
            begin = time.perf_counter()
            cluster.kill(victim)
            until(cluster, lambda answer: not {victim, -1} & set(leaders_in(answer).values()))
            led = time.perf_counter()
            until_served(cluster)
            served, vanished = time.perf_counter(), departure.at()
        begin_again = time.perf_counter()
        cluster.launch(victim)
        until_in_sync(cluster, self.partitions)
        return vanished - begin, led - vanished, served - vanished, time.perf_counter() - begin_again

    def _controller_failover(self, cluster: Cluster) -> tuple[float, float]:
        """Returns when its entry vanishes, and when its successor creates a topic."""
        victim = controller(cluster)
        topic = CreateTopicsRequest.CreatableTopic(name="afterwards", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=GIVE_UP_S * 1000)
        with departure_of(victim, cluster.zookeeper) as departure:
            begin = time.perf_counter()
            cluster.kill(victim)
            until_accepted(
                lambda: cluster.ports[controller(cluster)], request, CreateTopicsResponse, wire.CREATE_TOPICS_VERSION
            )
            created, vanished = time.perf_counter(), departure.at()
        cluster.launch(victim)
        until_in_sync(cluster, self.partitions)
        return vanished - begin, created - vanished

    def _started(self, cluster: Cluster) -> float:
        for broker_id in BROKERS:
            cluster.stop(broker_id)
        begin = time.perf_counter()
        cluster.launch(*BROKERS)
        until_in_sync(cluster, self.partitions)
        return time.perf_counter() - begin


class VisitsPerFetch(ClusterRow):
    """How many partitions a leader visits for a follower's fetch if one of a thousand is busy (benchmarks.visits)."""

    name = "cluster visits"
    metrics = (Metric("3 brokers, 1 of 1,000 partitions busy: visits", "1/fetch", LESS, None),)
    needs_broker = False

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        if not isinstance(contestant, Odradek):
            raise TakesNoPart("only Odradek's visits can be counted")
        if not (contestant.checkout.directory / "benchmarks" / "visits.py").exists():
            raise TakesNoPart("this version does not count visits")
        done = subprocess.run(
            contestant.checkout.command("benchmarks.visits"),
            cwd=contestant.checkout.directory,
            capture_output=True,
            text=True,
            timeout=GIVE_UP_S,
            check=True,
        )
        counted = json.loads(done.stdout)
        return {self.metrics[0].name: Reading(counted["visits"] / counted["fetches"])}


def create_topic(cluster: Cluster, name: str, partitions: int, replicas: int = len(BROKERS)) -> None:
    """Creates a topic with the controller, as soon as it can. Raises RuntimeError, TimeoutError."""
    wire.create_topic(cluster.ports[controller(cluster)], name, partitions, replicas=replicas, timeout_s=GIVE_UP_S)


def controller(cluster: Cluster) -> int:
    """Returns the controller as a live broker names it."""
    return until(cluster, lambda answer: answer.controller_id in cluster.pids).controller_id


def leaders(port: int, topic: str) -> Leaders:
    return leaders_in(wire.metadata(port, [topic]))


def leaders_in(answer: MetadataResponse) -> Leaders:
    """Returns the leaders of the topic, -1 for a partition without one."""
    return {part.partition_index: part.leader_id for part in answer.topics[0].partitions}


def until(cluster: Cluster, condition: Callable[[MetadataResponse], bool], topic: str = TOPIC) -> MetadataResponse:
    """Waits until what each live broker shows of a topic meets a condition; returns the last one's answer."""
    give_up = time.monotonic() + GIVE_UP_S
    while True:
        answers = [wire.metadata(port, [topic]) for port in cluster.live_ports]
        if all(map(condition, answers)):
            return answers[-1]
        if time.monotonic() > give_up:
            raise TimeoutError(f"the brokers' metadata is not as wanted after {GIVE_UP_S} s")
        time.sleep(PAUSE_S)


def until_in_sync(cluster: Cluster, partitions: int) -> None:
    """Waits until all brokers show all partitions led and with all replicas in sync."""

    def are_in_sync(answer: MetadataResponse) -> bool:
        shown = answer.topics[0].partitions
        return len(shown) == partitions and all(
            part.leader_id in part.isr_nodes and len(part.isr_nodes) == len(BROKERS) for part in shown
        )

    until(cluster, are_in_sync)


def until_served(cluster: Cluster) -> None:
    """Waits until the leaders of all partitions answer for them."""
    by_leader: dict[int, list[int]] = {}
    for partition, leader in leaders(cluster.live_ports[0], TOPIC).items():
        by_leader.setdefault(leader, []).append(partition)
    for leader, partitions in by_leader.items():
        wanted = [ListOffsetsRequest.ListOffsetsPartition(partition_index=one, timestamp=LATEST) for one in partitions]
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=wanted)]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        until_accepted(partial(cluster.ports.__getitem__, leader), request, ListOffsetsResponse, LIST_OFFSETS_VERSION)


def until_accepted(port: Callable[[], int], request: Message, response: type[Message], version: int) -> None:
    """Repeats a request until its response has no error. Raises TimeoutError."""
    give_up = time.monotonic() + GIVE_UP_S
    while errors := wire.errors_in(wire.call(port(), request, response, version, GIVE_UP_S)):
        if time.monotonic() > give_up:
            raise TimeoutError(f"refused for {GIVE_UP_S} s: {errors}")
        time.sleep(PAUSE_S)


def cluster_rows(scale: float) -> list[Row]:
    """Returns the rows in the order of the table. `scale` is the fraction of the full number of records."""
    warm_s = WARM_S if scale >= 1 else 0
    return [
        ReplicatedProduce(max(int(200_000 * scale), 1000), max(int(10_000 * scale), 1000), warm_s),
        ThousandPartitions(warm_s=warm_s),
        VisitsPerFetch(),
    ]

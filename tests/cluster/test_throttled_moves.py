"""Partitions move to another broker with a throttle, while producers with acks=all write: how fast the copy grows, and
what the producers notice.

The copy's size is looked at ten times a second. Its rate over every ten seconds stays below the limit and a tenth; in a
soak, when the machine has nothing else to do, also above nine tenths.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigResourceType
from tests.cluster.process_cluster import ProcessCluster, process_cluster
from tests.cluster.writer import percentile
from tests.soak import SOAK, rounds
from tests.wire import requests
from tests.wire.blocking_client import Client

MB = 1_000_000
PARTITIONS = 4
SIZE = rounds(64, in_soak=1024) * MB
LIMIT = rounds(4, in_soak=25) * MB
VALUE = 10_000
PER_SECOND = 200
WINDOW_S = 10
CALM_S = rounds(3, in_soak=20)
"""How long the producers are watched before the move."""
BIG, ORDERS = "big", "orders"

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


class Orders:
    """A producer with acks=all that sends at a steady rate, and how long each record waits for its acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        self.latencies: list[tuple[float, float]] = []
        """When each record was sent, and the seconds to its acknowledgement."""
        self.failures: list[str] = []
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        self._producer = confluent_kafka.Producer(settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders")
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            sent = partial(self._delivered, time.monotonic())
            self._producer.produce(ORDERS, b"v" * 1000, partition=0, on_delivery=sent)
            due = max(due + 1 / PER_SECOND, time.monotonic() - 1)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)

    def _delivered(self, sent: float, error: confluent_kafka.KafkaError | None, _message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        self.latencies.append((sent, time.monotonic() - sent))

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failures, self.failures[:3]

    def percentiles(self, begin: float, end: float) -> str:
        """p50 and p99 of the records that were sent within this time."""
        found = [1000 * seconds for sent, seconds in self.latencies if begin <= sent < end]
        return f"p50 {percentile(found, 0.5):.1f} ms, p99 {percentile(found, 0.99):.1f} ms of {len(found):,} records"


class Look(NamedTuple):
    """The copy's size, and times just before and just after it was looked at."""

    before: float
    size: int
    after: float


def size_on(cluster: ProcessCluster, broker_id: int) -> int:
    """The bytes of the topic's segments in a broker's directory."""
    return sum(path.stat().st_size for path in cluster.nodes[broker_id].data.glob(f"{BIG}-*/*.log"))


def look_until_in_sync(cluster: ProcessCluster) -> Iterator[Look]:
    next_view = time.monotonic() + 1
    while True:
        before = time.monotonic()
        yield Look(before, size_on(cluster, 3), time.monotonic())
        time.sleep(0.1)
        if time.monotonic() > next_view:
            next_view = time.monotonic() + 1
            partitions = cluster.view(1).partitions
            if all(3 in partitions[TopicPartition(BIG, number)].isr for number in range(PARTITIONS)):
                return


def rates_of(looks: list[Look]) -> Iterator[tuple[float, float]]:
    """For every ten seconds of the copy: the least and the most bytes per second that it can have been. The second in
    which it ends does not count.
    """
    whole = looks[-1].size
    end = next(place for place, look in enumerate(looks) if look.size == whole)
    growing = [look for look in looks[:end] if look.after < looks[end].before - 1]
    for first in growing:
        last = next((look for look in growing if look.before - first.after >= WINDOW_S), None)
        if last is not None:
            grown = last.size - first.size
            yield grown / (last.after - first.before), grown / (last.before - first.after)


def alter(cluster: ProcessCluster, broker_id: int, kind: ConfigResourceType, name: str, **settings: str) -> None:
    items = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=items
    )
    with Client(cluster.nodes[broker_id].address) as connection:
        answer = connection.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each.error_code for each in answer.responses] == [0], answer


def throttle(cluster: ProcessCluster) -> None:
    """As `kafka-reassign-partitions --throttle` does: the present replicas as leaders, the new ones as followers."""
    leaders = ",".join(f"{number}:{broker_id}" for number in range(PARTITIONS) for broker_id in (1, 2))
    followers = ",".join(f"{number}:3" for number in range(PARTITIONS))
    alter(
        cluster,
        1,
        ConfigResourceType.TOPIC,
        BIG,
        leader_replication_throttled_replicas=leaders,
        follower_replication_throttled_replicas=followers,
    )
    for broker_id in cluster.nodes:
        alter(
            cluster,
            broker_id,
            ConfigResourceType.BROKER,
            str(broker_id),
            leader_replication_throttled_rate=str(LIMIT),
            follower_replication_throttled_rate=str(LIMIT),
        )


def reassign(cluster: ProcessCluster, assignment: Mapping[int, list[int]]) -> None:
    wanted = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=number, replicas=replicas)
        for number, replicas in assignment.items()
    ]
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=BIG, partitions=wanted)
    with Client(cluster.nodes[cluster.controller()].address) as connection:
        request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=60_000)
        answer = connection.ask(request)
    assert answer.error_code == 0
    assert {each.error_code for each in answer.responses[0].partitions} == {0}


def create(cluster: ProcessCluster, name: str, assignment: Mapping[int, list[int]]) -> None:
    cluster.create(requests.assigned_topic(name, *assignment.values()))


def fill(cluster: ProcessCluster) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 50, "batch.size": 100_000, "log_level": 0}
    )
    for number in range(SIZE // VALUE):
        while len(producer) > 2000:
            producer.poll(0.01)
        producer.produce(BIG, os.urandom(100) * (VALUE // 100), partition=number % PARTITIONS)
    assert producer.flush(300) == 0


@pytest.mark.parametrize("leaders", [(1, 2), (1, 1)], ids=["two leaders", "one leader"])
@pytest.mark.soak("1 GB moved at 25 MB/s under a producer, from two leaders and from one", minutes=5)
def test_a_move_is_as_fast_as_its_throttle_over_every_ten_seconds(
    leaders: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {number: leaders[number % 2] for number in range(PARTITIONS)}
    with process_cluster(tmp_path, {"log.segment.bytes": str(64 * MB)}) as cluster:
        create(cluster, BIG, {number: [leader, 3 - leader] for number, leader in first.items()})
        create(cluster, ORDERS, {0: [1, 2, 3]})
        fill(cluster)
        cluster.until_whole()
        throttle(cluster)
        orders = Orders(cluster.bootstrap)
        calm = time.monotonic()
        time.sleep(CALM_S)
        begun = time.monotonic()
        reassign(cluster, {number: [leader, 3] for number, leader in first.items()})
        looks = list(look_until_in_sync(cluster))
        ended = time.monotonic()
        orders.finish()
        cluster.until_whole()
        rates = list(rates_of(looks))
        slowest, fastest = min(high for _, high in rates), max(low for low, _ in rates)
        with capsys.disabled():
            print(
                f"\n{size_on(cluster, 3) / MB:,.0f} MB in {ended - begun:.1f} s at a limit of {LIMIT / MB:.0f} MB/s; "
                f"over ten seconds {slowest / MB:.2f} to {fastest / MB:.2f} MB/s\n"
                f"producers before: {orders.percentiles(calm, begun)}\n"
                f"producers during: {orders.percentiles(begun, ended)}"
            )
        assert fastest <= 1.1 * LIMIT
        assert not SOAK or slowest >= 0.9 * LIMIT

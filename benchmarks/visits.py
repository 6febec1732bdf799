"""Counts the partitions that leaders visit for the fetches of followers, in a cluster of three brokers in this process.

    python -m benchmarks.visits [PARTITIONS] [RECORDS]

A producer with acks=all sends RECORDS (200), one at a time, to one of PARTITIONS (1,000) of three replicas. Prints one
JSON object: the number of the followers' fetches, and how often the leaders have looked a partition up for them, to
read it or to compute how much of it a waiting fetch would return.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from benchmarks.fan_out import Producer
from benchmarks.wire import connected
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import ClusterThread

TOPIC = "visited"
PATIENCE_S = 120
SETTLE_S = 2


class Counter:
    """Counts the visits, and the fetches, of brokers."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.visits = 0
        self._stats = [broker.cluster.fetchers.stats for broker in brokers]
        self._earlier = self._all_fetches
        for broker in brokers:
            self._count(broker)

    @property
    def fetches(self) -> int:
        return self._all_fetches - self._earlier

    @property
    def _all_fetches(self) -> int:
        return sum(stats.requests for stats in self._stats)

    def _count(self, broker: Broker) -> None:
        reader = broker.replica_manager.fetches.reader
        find = reader._partition

        def look(key: TopicPartition) -> Partition:
            self.visits += 1
            return find(key)

        reader._partition = look


def counted(partitions: int, records: int) -> Counter:
    """Starts a cluster and produces; returns what was counted from the second record on."""
    with ClusterThread(brokers=3, replica_lag_time_max_ms=30_000) as cluster:
        cluster.create_topic(TOPIC, partitions)
        cluster.wait_until_stable(within=PATIENCE_S)
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        with connected(int(cluster.bootstrap_of(leader).rpartition(":")[2])) as connection:
            producer = Producer(connection, TOPIC)
            producer.produce()
            time.sleep(SETTLE_S)
            counter = cluster.call(Counter, list(cluster.cluster.brokers.values()))
            for _ in range(records):
                producer.produce()
        return counter


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.visits")
    parser.add_argument("partitions", type=int, nargs="?", default=1000)
    parser.add_argument("records", type=int, nargs="?", default=200)
    arguments = parser.parse_args()
    counter = counted(arguments.partitions, arguments.records)
    print(json.dumps({"fetches": counter.fetches, "visits": counter.visits}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

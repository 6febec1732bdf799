"""Assigns the partitions of a topic to brokers.

Round robin with a shift, as in Kafka: partition p's first replica is placed on broker (start + p). The other replicas
follow at a distance that grows by one each time every broker has been first once. With five brokers, start 0, shift 0,
factor 3:

    partition   0   1   2   3   4   5   6
    replicas    0   1   2   3   4   0   1
                1   2   3   4   0   2   3
                2   3   4   0   1   3   4

The replicas of a partition are in as many racks as possible. The brokers are counted through rack by rack in turn, and
a broker is passed over while its rack has a replica and another one has none. Brokers without racks are as if they were
all in one. With the brokers 0 and 5 in the first rack, 3 and 4 in the second, 1 and 2 in the third:

    partition   0   1   2   3   4   5   6
    replicas    0   3   1   5   4   2   0
                3   1   5   4   2   0   4
                1   5   4   2   0   3   2

Source: Kafka's `AdminUtils.assignReplicasToBrokers`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import count, zip_longest


def assign_replicas(
    racks: Mapping[int, str],
    partition_count: int,
    replication_factor: int,
    source: random.Random,
    *,
    first_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Returns the replicas by partition for `partition_count` partitions starting at `first_partition`.

    `racks` by broker. `start_index` is where partition 0's first replica is (when partitions are added to a topic).
    Without it, the start is drawn from `source`. The caller checks that 1 <= replication_factor <= len(racks).
    """
    brokers = _rack_by_rack(racks)
    rack_count, broker_count = len(set(racks.values())), len(brokers)
    start = source.randrange(len(brokers)) if start_index is None else start_index
    shift = source.randrange(len(brokers)) if start_index is None else start_index
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % broker_count == 0:
            shift += 1
        first = (partition + start) % broker_count
        replicas = [brokers[first]]
        used = {racks[brokers[first]]}
        indexes = (_replica_index(first, shift * rack_count, index, broker_count) for index in count())
        while len(replicas) < replication_factor:
            broker = brokers[next(indexes)]
            if broker not in replicas and (racks[broker] not in used or len(used) == rack_count):
                replicas.append(broker)
                used.add(racks[broker])
        assignment[partition] = tuple(replicas)
    return assignment


def _rack_by_rack(racks: Mapping[int, str]) -> Sequence[int]:
    """Returns the first broker of each rack, then the second of each, and so on."""
    in_rack = [sorted(broker for broker in racks if racks[broker] == rack) for rack in sorted(set(racks.values()))]
    return [broker for turn in zip_longest(*in_rack) for broker in turn if broker is not None]


def _replica_index(first: int, shift: int, index: int, broker_count: int) -> int:
    distance = 1 + (shift + index) % (broker_count - 1)
    return (first + distance) % broker_count

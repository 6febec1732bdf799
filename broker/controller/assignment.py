"""Assigns the partitions of a new topic to brokers.

Round robin with a shift, as Kafka spreads replicas when racks are unknown: partition p's first replica is placed on
broker (start + p). The other replicas follow at a distance that grows by one each time every broker has been first
once. With five brokers, start 0, shift 0, factor 3:

    partition   0   1   2   3   4   5   6
    replicas    0   1   2   3   4   0   1
                1   2   3   4   0   2   3
                2   3   4   0   1   3   4

Source: Kafka's `AdminUtils.assignReplicasToBrokersRackUnaware`. Racks are ignored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def assign_replicas(
    brokers: Sequence[int],
    partition_count: int,
    replication_factor: int,
    source: random.Random,
    *,
    first_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Returns the replicas by partition for `partition_count` partitions starting at `first_partition`.

    `start_index` is the index in `brokers` of partition 0's first replica (when partitions are added to a topic).
    Without it, the start is drawn from `source`. The caller checks that 1 <= replication_factor <= len(brokers).
    """
    start = source.randrange(len(brokers)) if start_index is None else start_index
    shift = source.randrange(len(brokers)) if start_index is None else start_index
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        others = (_replica_index(first, shift, index, len(brokers)) for index in range(replication_factor - 1))
        assignment[partition] = (brokers[first], *(brokers[other] for other in others))
    return assignment


def _replica_index(first: int, shift: int, index: int, broker_count: int) -> int:
    distance = 1 + (shift + index) % (broker_count - 1)
    return (first + distance) % broker_count

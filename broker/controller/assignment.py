"""Which brokers hold which partitions of a new topic.

Round robin with a shift, as Kafka spreads replicas where no racks are known: partition p's first replica lies on
broker (start + p), the next ones follow at a distance that grows by one each time all brokers have been first once.
With five brokers, start 0, shift 0, factor 3:

    partition   0   1   2   3   4   5   6
    replicas    0   1   2   3   4   0   1
                1   2   3   4   0   2   3
                2   3   4   0   1   3   4

Source: Kafka's `AdminUtils.assignReplicasToBrokersRackUnaware`. Racks are not regarded.
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
    """Replicas by partition for `partition_count` partitions from `first_partition` on.

    `start_index` says where in `brokers` partition 0 began (for partitions added to a topic); otherwise it is drawn
    from `source`. 1 <= replication_factor <= len(brokers) is the caller's to check.
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

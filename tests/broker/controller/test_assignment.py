import json
import random
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.assignment import assign_replicas

KAFKA = json.loads(Path(__file__).with_name("kafka_assignments.json").read_text())
"""What AdminUtils.assignReplicasToBrokers of Kafka 3.9.1 returned for a start index and a first partition (-1: 0).
Brokers with the rack "" had none.
"""

RACKS = {0: "a", 1: "c", 2: "c", 3: "b", 4: "b", 5: "a"}


def without_racks(*brokers: int) -> dict[int, str]:
    return dict.fromkeys(brokers, "")


def test_replicas_are_assigned_as_in_kafkas_example_of_five_brokers() -> None:
    source = random.Random(0)
    assigned = assign_replicas(without_racks(0, 1, 2, 3, 4), 7, 3, source, start_index=0)
    assert assigned == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
    }


def test_every_broker_gets_its_share_of_leaders_and_replicas_and_no_partition_twice() -> None:
    assigned = assign_replicas(without_racks(1, 5, 9), 12, 2, random.Random(3))
    assert all(len(set(replicas)) == 2 for replicas in assigned.values())
    leaders = [replicas[0] for replicas in assigned.values()]
    assert all(leaders.count(broker) == 4 for broker in (1, 5, 9))


def test_added_partitions_continue_the_numbering() -> None:
    assert list(assign_replicas(without_racks(7), 2, 1, random.Random(0), first_partition=3, start_index=0)) == [3, 4]


def test_replicas_are_spread_over_racks_as_in_kafkas_example_of_three_racks() -> None:
    assert assign_replicas(RACKS, 7, 3, random.Random(0), start_index=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_every_rack_gets_a_replica_and_every_broker_its_share() -> None:
    assigned = assign_replicas(RACKS, 12, 4, random.Random(5))
    for replicas in assigned.values():
        assert len(set(replicas)) == 4
        assert {RACKS[broker] for broker in replicas} == {"a", "b", "c"}
    leaders = [replicas[0] for replicas in assigned.values()]
    assert all(leaders.count(broker) == 2 for broker in RACKS)


def test_two_replicas_are_never_in_one_rack_if_there_are_several() -> None:
    uneven = {1: "a", 2: "a", 3: "a", 4: "b"}
    for seed in range(20):
        for replicas in assign_replicas(uneven, 8, 2, random.Random(seed)).values():
            assert {uneven[broker] for broker in replicas} == {"a", "b"}


@pytest.mark.parametrize(
    "case", KAFKA, ids=[f"{len(each['racks'])} brokers {number}" for number, each in enumerate(KAFKA)]
)
def test_replicas_are_assigned_as_by_kafka(case: dict[str, Any]) -> None:
    assigned = assign_replicas(
        {int(broker): rack for broker, rack in case["racks"].items()},
        case["partitions"],
        case["factor"],
        random.Random(0),
        first_partition=max(case["first"], 0),
        start_index=case["start"],
    )
    assert assigned == {int(partition): tuple(replicas) for partition, replicas in case["replicas"].items()}

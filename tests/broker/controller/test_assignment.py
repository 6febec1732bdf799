import random

from odradek.broker.controller.assignment import assign_replicas


def test_replicas_are_assigned_as_in_kafkas_example_of_five_brokers() -> None:
    source = random.Random(0)
    assigned = assign_replicas([0, 1, 2, 3, 4], 7, 3, source, start_index=0)
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
    assigned = assign_replicas([1, 5, 9], 12, 2, random.Random(3))
    assert all(len(set(replicas)) == 2 for replicas in assigned.values())
    leaders = [replicas[0] for replicas in assigned.values()]
    assert all(leaders.count(broker) == 4 for broker in (1, 5, 9))


def test_added_partitions_continue_the_numbering() -> None:
    assert list(assign_replicas([7], 2, 1, random.Random(0), first_partition=3, start_index=0)) == [3, 4]

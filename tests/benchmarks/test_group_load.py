"""The load of the coordinators' rows, with a small crowd of members."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import wire
from benchmarks.coordinator_rows import go_on, load, next_of
from benchmarks.group_load import TOPIC
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek.protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchResponse
from tests.spawned_broker import spawned_broker

GROUPS, MEMBERS = 3, 4


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with spawned_broker(tmp_path / "data", settings) as broker:
        yield int(broker.bootstrap.rpartition(":")[2])


def states(port: int) -> list[tuple[str, int]]:
    request = DescribeGroupsRequest(groups=[f"group-{number}" for number in range(GROUPS)])
    answer = wire.call(port, request, DescribeGroupsResponse, 4)
    return [(group.group_state, len(group.members)) for group in answer.groups]


def test_a_crowd_of_members_becomes_stable_and_leaves(port: int) -> None:
    with load("members", port, GROUPS, MEMBERS) as crowd:
        assert next_of(crowd.stdout)["stable_ms"] > 0
        assert states(port) == [("Stable", MEMBERS)] * GROUPS
        assert next_of(crowd.stdout) == {"calm": 1}
        go_on(crowd)
        assert next_of(crowd.stdout)["left_ms"] > 0
        assert states(port) == [("Empty", 0)] * GROUPS


def shares(port: int) -> tuple[str, list[int]]:
    """Returns the state of the consumer group, and how many partitions each of its members has."""
    request = ConsumerGroupDescribeRequest(group_ids=["consumers"])
    (group,) = wire.call(port, request, ConsumerGroupDescribeResponse, 1).groups
    partitions = [[each.partitions for each in member.assignment.topic_partitions] for member in group.members]
    return group.group_state, sorted(len(numbers) for member in partitions for numbers in member)


def test_a_crowd_of_consumers_is_balanced_changes_and_leaves(port: int) -> None:
    wire.create_topic(port, TOPIC, MEMBERS)
    with load("consumers", port, MEMBERS, 2) as crowd:
        assert next_of(crowd.stdout)["stable_ms"] > 0
        assert shares(port) == ("Stable", [1] * MEMBERS)
        assert next_of(crowd.stdout) == {"calm": 1}
        go_on(crowd)
        assert next_of(crowd.stdout)["changed_ms"] > 0
        assert shares(port)[1] == [1] * MEMBERS
        go_on(crowd)
        assert next_of(crowd.stdout)["left_ms"] > 0
        assert shares(port) == ("Empty", [])


@pytest.mark.parametrize(("what", "kind"), [("commits", "classic"), ("consumer-commits", "consumer")])
def test_commits_are_committed(port: int, what: str, kind: str) -> None:
    wire.create_topic(port, TOPIC, 2)
    with load(what, port, 3, 2, 50) as committing:
        assert next_of(committing.stdout) == {"measuring": 1}
        assert next_of(committing.stdout)["commits"] == 50
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])
    answer = wire.call(
        port, OffsetFetchRequest(group_id=f"committing-{kind}-0", topics=[topic]), OffsetFetchResponse, 5
    )
    assert [partition.committed_offset for partition in answer.topics[0].partitions] == [1_000_000, 1_000_001]


def test_a_failed_load_raises_an_error(port: int) -> None:
    with pytest.raises(RuntimeError), load("commits", port, 1, 1, 10) as committing:  # there is no such topic
        next_of(committing.stdout)

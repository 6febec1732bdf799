"""Offsets that are removed while too few replicas are in sync for the appends that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.offsets.commits import commit_offsets
from odradek.broker.coordinator.group.offsets.removal import expire_offsets, remove_offsets, remove_offsets_of_topic
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.harness import GROUP, GroupHarness
from tests.broker.coordinator.group.offsets.offset_log import committed

RETENTION_MS = 1000


@pytest.fixture
def harness() -> GroupHarness:
    """Has committed offsets of two topics: "old" at 0 ms, "young" at 5000 ms."""
    harness = GroupHarness()
    outcomes: list[ProtocolError | None] = []
    commits = {topic: {0: committed(5, at_ms=at_ms)} for topic, at_ms in (("old", 0), ("young", 5000))}
    commit_offsets(harness.shard, Committer(GROUP), commits, outcomes.append)
    assert outcomes == [None]
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    return harness


def topics(harness: GroupHarness) -> list[str]:
    return sorted(harness.shard.offsets.committed(GROUP))


@pytest.mark.parametrize(
    "remove",
    [lambda shards: expire_offsets(shards, 5000, RETENTION_MS), lambda shards: remove_offsets_of_topic(shards, "old")],
    ids=["expired", "of a deleted topic"],
)
def test_offsets_that_no_client_deletes_go_all_the_same(
    harness: GroupHarness, remove: Callable[[list[GroupShard]], Iterator[object]]
) -> None:
    list(remove([harness.shard]))
    assert topics(harness) == ["young"]
    harness.restart()
    assert topics(harness) == ["young"]


def test_offsets_that_a_client_deletes_stay(harness: GroupHarness) -> None:
    outcomes: list[ProtocolError | None] = []
    remove_offsets(harness.shard, harness.shard.groups[GROUP], {"old": [0]}, outcomes.append)
    assert [error and error.code for error in outcomes] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert topics(harness) == ["old", "young"]

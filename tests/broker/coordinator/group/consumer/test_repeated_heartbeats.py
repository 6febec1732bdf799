"""A heartbeat that the member has sent before is answered from that one, as long as nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat
from odradek.broker.coordinator.group.consumer.metadata_hash import AT_ONCE
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork
from tests.broker.coordinator.group.harness import GROUP

SESSION_MS = 45_000


def bare(member_id: str, epoch: int, **fields: Any) -> Heartbeat:
    return Heartbeat(GROUP, member_id, epoch, client_id="client", client_host="/127.0.0.1", **fields)


@pytest.fixture
def shard() -> ShardAtWork:
    """A group of one member, which has sent a heartbeat that changed nothing."""
    shard = ShardAtWork()
    shard.join_consumer("a", "foo")
    shard.beat("a", shard.consumer("a").epoch)
    assert shard.coordinator.repeated_heartbeat(bare("a", shard.consumer("a").epoch)) is not None
    return shard


def test_it_gets_the_same_response_and_puts_off_the_end_of_the_session(shard: ShardAtWork) -> None:
    epoch = shard.consumer("a").epoch
    whole = shard.beat("a", epoch)
    for _ in range(3):
        shard.advance(SESSION_MS - 1)
        assert shard.coordinator.repeated_heartbeat(bare("a", epoch)) == whole
    shard.advance(SESSION_MS)
    assert shard.consumer_group.is_empty
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch)) is None


def another_joins(shard: ShardAtWork) -> None:
    shard.join_consumer("b", "foo")


def a_setting_changes(shard: ShardAtWork) -> None:
    shard.consumer_settings = shard.consumer_settings._replace(session_timeout_ms=50_000)


def a_topic_changes(shard: ShardAtWork) -> None:
    shard.consumer_group.refresh_at_ms = AT_ONCE


def the_partition_moves(shard: ShardAtWork) -> None:
    shard.restart()


@pytest.mark.parametrize("change", [another_joins, a_setting_changes, a_topic_changes, the_partition_moves])
def test_after_a_change_it_is_handled_in_full(shard: ShardAtWork, change: Callable[[ShardAtWork], None]) -> None:
    epoch = shard.consumer("a").epoch
    change(shard)
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch)) is None


@pytest.mark.parametrize(
    "other",
    [{"owned": {}}, {"topics": ["foo"]}, {"rack_id": "r"}, {"assignor": "range"}, {"rebalance_timeout_ms": 7}],
)
def test_another_heartbeat_is_handled_in_full(shard: ShardAtWork, other: dict[str, Any]) -> None:
    epoch = shard.consumer("a").epoch
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch, **other)) is None
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch + 1)) is None


def test_a_member_with_a_regular_expression_is_looked_at_each_time() -> None:
    shard = ShardAtWork()
    shard.join_consumer("a", regex="f.*")
    shard.work()
    for _ in range(3):
        epoch = shard.beat("a", shard.consumer("a").epoch).member_epoch
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch)) is None


def test_what_is_not_replicated_yet_is_not_answered(shard: ShardAtWork) -> None:
    shard.log.is_held = True
    shard.send("b", 0, rebalance_timeout_ms=7, topics=["bar"], owned={})
    epoch = shard.consumer("a").epoch
    answers = shard.send("a", epoch, owned={})
    assert not answers
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch)) is None
    shard.log.settle()
    assert len(answers) == 1


def test_who_has_been_fenced_is_refused(shard: ShardAtWork) -> None:
    epoch = shard.consumer("a").epoch
    shard.leave_consumer("a")
    assert shard.coordinator.repeated_heartbeat(bare("a", epoch)) is None
    assert shard.refused_beat("a", epoch) is ErrorCode.UNKNOWN_MEMBER_ID

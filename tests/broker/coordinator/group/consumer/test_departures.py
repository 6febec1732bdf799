"""Members that go in one iteration of the event loop go together, and as if they had gone one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.coordinator.group.consumer.departures import MOST_AT_ONCE
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat
from odradek.broker.coordinator.group.consumer.member import LEAVING
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork, kinds
from tests.broker.coordinator.group.harness import GROUP

SESSION_MS = 45_000


class Crowd(ShardAtWork):
    """Members that have joined, and leave without waiting for the answer."""

    def __init__(self, *member_ids: str) -> None:
        super().__init__()
        for member_id in member_ids:
            self.join_consumer(member_id, "foo")
        self.epoch = self.consumer_group.epoch
        self.records = len(self.log.records)

    def go(self, member_id: str) -> list[Any]:
        """Returns the answers, which come later."""
        answers: list[Any] = []
        request = Heartbeat(GROUP, member_id, LEAVING)
        assert self.coordinator.repeated_heartbeat(request) is None
        self.coordinator.consumer_heartbeat(request, lambda _: True, answers.append)
        return answers

    def written(self) -> list[int]:
        return kinds(self.log.records[self.records :])


def test_they_go_in_one_batch_and_each_has_an_epoch() -> None:
    crowd = Crowd("a", "b", "c")
    answers = [crowd.go("a"), crowd.go("c")]
    assert not crowd.written()
    crowd.settled()
    assert [[(each.member_id, each.member_epoch) for each in some] for some in answers] == [[("a", -1)], [("c", -1)]]
    assert crowd.written() == [-8, -7, -5, -8, -7, -5, 3]
    assert crowd.consumer_group.epoch == crowd.epoch + 2
    assert list(crowd.consumer_group.members_by_id) == ["b"]


def test_the_last_ones_leave_an_empty_group_whose_next_member_need_not_wait() -> None:
    crowd = Crowd("a", "b")
    crowd.go("a"), crowd.go("b")
    crowd.settled()
    assert crowd.written() == [-8, -7, -5, -8, -7, -5, 3, 6]
    assert crowd.consumer_group.state_name == "Empty"
    assert crowd.consumer_group.target_epoch == crowd.consumer_group.epoch == crowd.epoch + 2


def test_a_later_request_finds_them_gone() -> None:
    crowd = Crowd("a", "b")
    answers = crowd.go("a")
    assert crowd.coordinator.group(GROUP) is crowd.consumer_group
    assert [each.member_epoch for each in answers] == [LEAVING]
    assert list(crowd.consumer_group.members_by_id) == ["b"]


def test_who_leaves_twice_is_refused_once() -> None:
    crowd = Crowd("a", "b")
    answers = crowd.go("a")
    with pytest.raises(ProtocolError) as refused:
        crowd.go("a")
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.member_epoch for each in answers] == [LEAVING]
    assert crowd.consumer_group.epoch == crowd.epoch + 1


def test_all_learn_that_their_departure_was_not_written() -> None:
    crowd = Crowd("a", "b", "c")
    crowd.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    answers = [crowd.go("a"), crowd.go("b")]
    crowd.settled()
    assert [each.code for some in answers for each in some] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert list(crowd.consumer_group.members_by_id) == ["a", "b", "c"]


def test_they_are_told_where_the_partition_has_moved_from() -> None:
    crowd = Crowd("a", "b")
    shard, answers = crowd.shard, crowd.go("a")
    shard.unload()
    crowd.settled()
    assert [each.code for each in answers] == [ErrorCode.NOT_COORDINATOR]


def test_sessions_that_end_together_are_one_batch_and_what_is_not_written_is_tried_again() -> None:
    crowd = Crowd("a", "b")
    crowd.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    crowd.advance(SESSION_MS)
    assert list(crowd.consumer_group.members_by_id) == ["a", "b"]
    crowd.log.failure = None
    crowd.advance(SESSION_MS)
    assert crowd.consumer_group.is_empty
    assert crowd.consumer_group.epoch == crowd.epoch + 2


def test_many_go_in_several_steps() -> None:
    crowd = Crowd(*(f"m{number}" for number in range(MOST_AT_ONCE + 1)))
    for member_id in list(crowd.consumer_group.members_by_id):
        crowd.go(member_id)
    assert crowd.written().count(3) == 1
    crowd.settled()
    assert crowd.written().count(3) == 2
    assert crowd.consumer_group.is_empty
    assert crowd.consumer_group.epoch == crowd.epoch + MOST_AT_ONCE + 1

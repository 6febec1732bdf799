"""One fetcher: what it does after each response. The logs and the leader are real; the test makes the steps."""

from __future__ import annotations

import errno
import itertools
import uuid
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.replica.follower.fetcher import FIRST_DELAY_MS, Fetcher
from odradek.broker.replica.follower.fetcher_actions import Fetch, FlushLogs, ListOffsets, TruncateLogs, Wait
from odradek.broker.replica.follower.fetcher_state import MOVES, FetchFrom, Followed, FollowerState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.list_offsets import ListOffsetsResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.truncation import StartOver, Truncate
from odradek.storage.log_config import LogConfig
from tests.broker.replica.replicas import AT_ONCE, BACKOFF_MS, KEY, TOPIC_ID, Replica, same

OTHER = TopicPartition("orders", 1)


def pair(*values: bytes, epoch: int = 0) -> tuple[Replica, Replica]:
    """Returns a leader with these records, each in its batch, and a follower that has fetched nothing yet."""
    leader, follower = Replica(1), Replica(2)
    leader.lead(epoch, isr=(1, 2))
    for value in values:
        leader.produce(value)
    follower.follow(leader, epoch)
    return leader, follower


def only(response: FetchResponse) -> Any:
    ((data,),) = [topic.partitions for topic in response.responses]
    return data


def state_of(replica: Replica, key: TopicPartition = KEY) -> FollowerState | None:
    assert replica.fetcher is not None
    followed = replica.fetcher.followed.get(key)
    return None if followed is None else followed.state


def followed_by(replica: Replica, key: TopicPartition = KEY) -> Followed:
    assert replica.fetcher is not None
    return replica.fetcher.followed[key]


def kinds(actions: list[Any]) -> list[str]:
    return [type(action).__name__ for action in actions]


def request_of(action: Any) -> Any:
    assert isinstance(action, Fetch), action
    return action.request


# Requests


def test_a_fetch_has_the_settings_and_the_position_of_the_log() -> None:
    _, follower = pair(b"m0", b"m1", epoch=3)
    request = request_of(follower.step())
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (2, 0, 1)
    assert (request.max_bytes, request.isolation_level) == (10 << 20, 0)
    assert (request.session_id, request.session_epoch) == (0, 0)
    (asked,) = request.topics[0].partitions
    assert (asked.partition, asked.current_leader_epoch, asked.fetch_offset) == (0, 3, 0)
    assert (asked.last_fetched_epoch, asked.log_start_offset, asked.partition_max_bytes) == (-1, 0, 1 << 20)
    (asked,) = request_of(follower.step()).topics[0].partitions
    assert (asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch) == (3, 2, 3)


def test_an_idle_fetch_of_a_thousand_partitions_names_none_and_visits_none(tmp_path: Path) -> None:
    leader, follower = Replica(1, folder=tmp_path / "1"), Replica(2, folder=tmp_path / "2")
    keys = [TopicPartition("t", number) for number in range(1000)]
    for key in keys:
        leader.lead(0, key)
    fetcher = follower.follow(leader, 0, *keys)
    follower.step()
    follower.step()
    counted = Visits(fetcher.followed)
    fetcher.followed = counted
    for _ in range(5):
        request = request_of(follower.step())
        assert (request.topics, request.forgotten_topics_data) == ([], [])
    assert counted.visits == 0
    leader.produce(b"m", key=keys[500])
    follower.replicate()
    assert follower.values(keys[500]) == [b"m"]
    assert counted.visits < 10


class Visits(dict[TopicPartition, Followed]):
    """Counts how often one of the partitions is looked at."""

    visits = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.visits += 1
        return super().get(key, default)

    def __getitem__(self, key: TopicPartition) -> Followed:
        self.visits += 1
        return super().__getitem__(key)

    def values(self) -> Any:
        self.visits += len(self)
        return super().values()


def test_a_partition_that_received_records_stands_behind_the_others() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.sessions.max_sessions = 0
    for key in (KEY, OTHER):
        leader.lead(0, key)
    follower.follow(leader, 0, KEY, OTHER)
    leader.produce(b"m0")
    follower.step()
    (topic,) = request_of(follower.step()).topics
    assert [asked.partition for asked in topic.partitions] == [1, 0]


def test_a_removed_partition_is_forgotten_by_the_leader() -> None:
    leader, follower = Replica(1), Replica(2)
    for key in (KEY, OTHER):
        leader.lead(0, key)
    fetcher = follower.follow(leader, 0, KEY, OTHER)
    follower.replicate()
    fetcher.drop(KEY)
    (forgotten,) = request_of(follower.step()).forgotten_topics_data
    assert (forgotten.topic, forgotten.partitions) == ("orders", [0])
    leader.produce(b"m0")
    follower.replicate()
    assert follower.values() == []


def test_a_fetcher_without_partitions_waits_for_some() -> None:
    _, follower = pair()
    assert follower.fetcher is not None
    follower.step()
    follower.fetcher.drop(KEY)
    assert follower.step() == Wait(None)
    assert follower.fetcher.is_idle


def test_following_the_same_leader_in_the_same_epoch_again_changes_nothing() -> None:
    leader, follower = pair(b"m0")
    follower.replicate()
    assert follower.fetcher is not None
    before = follower.fetcher.followed[KEY]
    follower.follow(leader, 0)
    assert follower.fetcher.followed[KEY] is before
    assert request_of(follower.step()).topics == []


# Records and watermarks


def test_records_are_appended_and_the_watermarks_follow_the_leaders() -> None:
    leader, follower = pair(b"m0", b"m1", b"m2")
    follower.replicate()
    leader.delete_records(2)
    follower.replicate()
    log = follower.log()
    assert (log.state.log_start_offset, log.state.high_watermark, log.state.log_end_offset) == (2, 3, 3)
    assert follower.moved_partitions == [KEY] * len(follower.moved_partitions) != []
    leader.produce(b"m3")
    follower.replicate()
    same(leader, follower)


def test_the_leader_learns_the_followers_log_start_offset() -> None:
    leader, follower = pair(b"m0", b"m1", b"m2")
    follower.replicate()
    leader.delete_records(2)
    follower.replicate()
    assert leader.partition().remote_replicas[2].log_start_offset == 2


def test_the_lag_is_counted_to_the_leaders_high_watermark() -> None:
    leader, follower = Replica(1), Replica(2, settings=AT_ONCE._replace(replica_fetch_max_bytes=1))
    leader.lead(0)
    for number in range(5):
        leader.produce(b"m%d" % number)
    fetcher = follower.follow(leader, 0)
    assert fetcher.max_lag == -1
    follower.step()
    assert fetcher.max_lag == 4
    follower.replicate()
    assert fetcher.max_lag == 0
    assert fetcher.stats.bytes_in == leader.log().segments.size_in_bytes
    assert fetcher.stats.requests == len([action for action in follower.actions if isinstance(action, Fetch)])


@pytest.mark.parametrize("change", ["removed", "another epoch", "another topic"])
def test_a_response_to_an_earlier_leadership_is_not_applied(change: str) -> None:
    leader, follower = pair(b"m0")
    fetcher = follower.fetcher
    assert fetcher is not None
    action = fetcher.next_action(0)
    response = leader.answer_fetch(request_of(action))
    fetcher.drop(KEY)
    partition = follower.partition()
    if change == "another epoch":
        fetcher.follow(partition, FetchFrom(1, 1, TOPIC_ID))
    elif change == "another topic":
        fetcher.follow(partition, FetchFrom(1, 0, uuid.UUID(int=8)))
    finished(fetcher.fetched(response, 0))
    assert follower.values() == []
    assert follower.log().state.high_watermark == 0


def test_a_response_for_an_offset_that_is_no_longer_the_logs_end_is_not_applied() -> None:
    leader, follower = pair(b"m0", b"m1")
    fetcher = follower.fetcher
    assert fetcher is not None
    request = request_of(fetcher.next_action(0))
    late = leader.answer_fetch(request)
    finished(fetcher.fetched(leader.answer_fetch(request_of(Fetch(request))), 0))
    finished(fetcher.fetched(late, 0))
    assert follower.values() == [b"m0", b"m1"]
    follower.replicate()
    same(leader, follower)


def test_partitions_may_be_removed_between_the_steps_of_a_response() -> None:
    leader, follower = Replica(1), Replica(2)
    keys = [TopicPartition("t", number) for number in range(100)]
    for key in keys:
        leader.lead(0, key)
        leader.produce(b"m" * 9000, key=key)
    fetcher = follower.follow(leader, 0, *keys)
    response = leader.answer_fetch(request_of(fetcher.next_action(0)))
    steps = fetcher.fetched(response, 0)
    next(steps)
    applied = [key for key in keys if follower.log(key).state.log_end_offset]
    assert 1 <= len(applied) < 30
    for key in keys:
        fetcher.drop(key)
    finished(steps)
    assert [key for key in keys if follower.log(key).state.log_end_offset] == applied


# Errors of the leader

DELAYING = [
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


@pytest.mark.parametrize("error", DELAYING, ids=lambda error: error.name)
def test_an_error_of_the_leader_delays_the_partition_and_nothing_else(error: ErrorCode) -> None:
    leader, follower = Replica(1), Replica(2)
    for key in (KEY, OTHER):
        leader.lead(0, key)
    follower.follow(leader, 0, KEY, OTHER)
    follower.replicate()
    leader.produce(b"m0")
    leader.produce(b"m1", key=OTHER)
    leader.tamper = _fail_first(error)
    follower.step()
    leader.tamper = None
    assert state_of(follower) is FollowerState.DELAYED
    request = request_of(follower.step())
    assert [(topic.topic, topic.partitions) for topic in request.forgotten_topics_data] == [("orders", [0])]
    assert (follower.values(), follower.values(OTHER)) == ([], [b"m1"])
    follower.clock.advance(FIRST_DELAY_MS - 1)
    follower.step()
    assert state_of(follower) is FollowerState.DELAYED
    follower.clock.advance(1)
    follower.replicate()
    assert follower.values() == [b"m0"]
    assert not follower.failed_partitions


def _fail_first(error: ErrorCode) -> Any:
    def tamper(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == KEY.partition:
                    data.error_code, data.records = error, b""

    return tamper


def test_the_delay_grows_with_each_error_up_to_the_setting_and_begins_anew_after_a_success() -> None:
    leader, follower = pair(b"m0")
    leader.tamper = _fail_first(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    delays = []
    for _ in range(7):
        follower.step()
        action = follower.step()
        assert isinstance(action, Wait)
        assert action.until_ms is not None
        delays.append(action.until_ms - follower.clock.now_ms())
        follower.clock.advance(delays[-1])
    assert delays == [50, 100, 200, 400, 800, 1000, 1000]
    leader.tamper = None
    follower.step()
    leader.produce(b"m1")
    leader.tamper = _fail_first(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    follower.step()
    assert follower.step() == Wait(follower.clock.now_ms() + FIRST_DELAY_MS)


def test_each_partition_is_delayed_for_itself() -> None:
    leader, follower = Replica(1), Replica(2)
    keys = [TopicPartition("t", number) for number in range(4)]
    for key in keys:
        leader.lead(0, key)
    follower.follow(leader, 1, *keys)
    follower.step()
    follower.clock.advance(FIRST_DELAY_MS)
    leader.lead(1, keys[2])
    follower.step()
    follower.clock.advance(FIRST_DELAY_MS)
    assert follower.fetcher is not None
    follower.fetcher.drop(keys[0])
    follower.follow(leader, 1, keys[0])
    follower.replicate()
    states = [state_of(follower, key) for key in keys]
    assert states == [FollowerState.DELAYED, FollowerState.DELAYED, FollowerState.FETCHING, FollowerState.DELAYED]
    for key in keys:
        leader.lead(1, key)
        leader.produce(b"m0", key=key)
    follower.clock.advance(2 * FIRST_DELAY_MS)
    follower.replicate()
    assert all(follower.values(key) == [b"m0"] for key in keys)


def test_a_leader_that_does_not_lead_yet_is_fetched_from_later() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0)
    follower.follow(leader, 1)
    assert kinds(follower.replicate()) == ["Fetch", "Wait"]
    leader.lead(1)
    leader.produce(b"m0")
    follower.clock.advance(BACKOFF_MS)
    follower.replicate()
    same(leader, follower)


def test_a_follower_of_an_older_epoch_is_fenced_and_not_followed_until_it_is_added_again() -> None:
    leader, follower = pair(b"m0")
    leader.lead(1)
    follower.step()
    assert follower.failed_partitions == {KEY: False}
    assert follower.step() == Wait(None)
    follower.follow(leader, 1)
    follower.replicate()
    same(leader, follower)


def test_a_lost_connection_forgets_nothing() -> None:
    leader, follower = pair(b"m0")
    follower.replicate()
    leader.produce(b"m1")
    leader.is_down = True
    assert kinds(follower.replicate()) == ["Fetch", "Wait"]
    follower.clock.advance(FIRST_DELAY_MS)
    assert kinds(follower.replicate()) == ["Fetch", "Wait"]
    leader.is_down = False
    follower.clock.advance(2 * FIRST_DELAY_MS - 1)
    assert follower.step() == Wait(follower.clock.now_ms() + 1)
    follower.clock.advance(1)
    assert request_of(follower.step()).session_epoch == 0
    follower.replicate()
    same(leader, follower)


def test_a_session_that_the_leader_has_evicted_is_opened_again_at_once() -> None:
    leader, follower = pair(b"m0")
    follower.replicate()
    leader.produce(b"m1")
    leader.sessions.remove(request_of(follower.actions[-1]).session_id)
    assert "Wait" not in kinds(follower.replicate())
    same(leader, follower)


def test_a_leader_that_refuses_even_full_requests_is_not_asked_in_a_loop() -> None:
    leader, follower = pair(b"m0")
    leader.tamper = lambda response: setattr(response, "error_code", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert kinds(follower.replicate()) == ["Fetch", "Wait"]


# Out of range


def test_a_follower_that_ends_before_the_leader_starts_starts_over_there() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0)
    leader.produce(b"m0")
    follower.follow(leader, 0)
    follower.replicate()
    follower.stop_following()
    for number in range(1, 9):
        leader.produce(b"m%d" % number)
    leader.delete_records(5)
    follower.follow(leader, 0)
    actions = follower.replicate()
    assert kinds(actions)[:4] == ["Fetch", "ListOffsets", "ListOffsets", "TruncateLogs"]
    assert actions[3] == TruncateLogs({KEY: StartOver(5)}, {KEY: followed_by(follower)})
    assert follower.log().state.log_start_offset == 5
    assert follower.values() == [b"m%d" % number for number in range(5, 9)]


def test_a_follower_that_is_longer_than_the_leader_truncates_to_the_leaders_end() -> None:
    _, follower = pair(b"m0", b"m1", b"m2")
    follower.replicate()
    shorter = Replica(3)
    shorter.lead(0)
    shorter.produce(b"m0")
    shorter.log().leader_epochs.clear()
    follower.follow(shorter, 0)
    actions = follower.replicate()
    assert kinds(actions)[:3] == ["Fetch", "ListOffsets", "TruncateLogs"]
    assert actions[2] == TruncateLogs({KEY: Truncate(1)}, {KEY: followed_by(follower)})
    assert follower.values() == [b"m0"]


def test_a_follower_that_is_in_the_leaders_range_after_all_keeps_its_records_and_tries_later() -> None:
    leader, follower = pair(b"m0", b"m1")
    follower.replicate()
    leader.produce(b"m2")
    leader.tamper = _fail_first(ErrorCode.OFFSET_OUT_OF_RANGE)
    actions = follower.replicate()
    assert kinds(actions) == ["Fetch", "ListOffsets", "ListOffsets", "Wait"]
    assert follower.values() == [b"m0", b"m1"]
    leader.tamper = None
    follower.clock.advance(BACKOFF_MS)
    follower.replicate()
    same(leader, follower)


def test_leaders_that_are_gone_while_their_offsets_are_looked_up_are_asked_again() -> None:
    leader, follower = pair(b"m0")
    follower.replicate()
    leader.tamper = _fail_first(ErrorCode.OFFSET_OUT_OF_RANGE)
    leader.produce(b"m1")
    follower.step()
    leader.is_down = True
    assert isinstance(follower.step(), ListOffsets)
    assert isinstance(follower.step(), Wait)
    assert state_of(follower) is FollowerState.OUT_OF_RANGE
    leader.is_down, leader.tamper = False, None
    follower.clock.advance(BACKOFF_MS)
    assert isinstance(follower.step(), ListOffsets)


@pytest.mark.parametrize("during_start", [False, True], ids=["end", "start"])
def test_the_lookup_of_offsets_is_fenced_like_a_fetch(during_start: bool) -> None:
    leader, follower = pair(b"m0")
    follower.replicate()
    leader.tamper = _fail_first(ErrorCode.OFFSET_OUT_OF_RANGE)
    leader.produce(b"m1")
    follower.step()
    if during_start:
        follower.step()
    leader.lead(1)
    assert isinstance(follower.step(), ListOffsets)
    assert follower.failed_partitions == {KEY: False}


def test_the_lookup_of_offsets_fails_for_each_partition_alone() -> None:
    leader, follower = pair(b"m0")
    fetcher = follower.fetcher
    assert fetcher is not None
    leader.tamper = _fail_first(ErrorCode.OFFSET_OUT_OF_RANGE)
    follower.step()
    action = fetcher.next_action(0)
    assert isinstance(action, ListOffsets)
    fetcher.offsets_found(action, ListOffsetsResponse(topics=[]), 0)
    assert state_of(follower) is FollowerState.DELAYED


def test_what_was_removed_while_its_offsets_were_looked_up_is_left_alone() -> None:
    leader, follower = pair(b"m0")
    fetcher = follower.fetcher
    assert fetcher is not None
    leader.tamper = _fail_first(ErrorCode.OFFSET_OUT_OF_RANGE)
    follower.step()
    action = fetcher.next_action(0)
    assert isinstance(action, ListOffsets)
    response = leader.answer_list_offsets(action.request)
    fetcher.drop(KEY)
    fetcher.offsets_found(action, response, 0)
    assert fetcher.next_action(0) == Wait(None)


# The follower's own log


def test_damaged_records_are_fetched_again() -> None:
    leader, follower = pair(b"m0")

    def damage(response: FetchResponse) -> None:
        records = bytearray(only(response).records)
        records[-1] ^= 1
        only(response).records = bytes(records)

    leader.tamper = damage
    follower.step()
    assert state_of(follower) is FollowerState.DELAYED
    assert follower.log().state.log_end_offset == 0
    leader.tamper = None
    follower.clock.advance(BACKOFF_MS)
    follower.replicate()
    same(leader, follower)


def test_a_full_disk_delays_the_partition_until_there_is_room() -> None:
    leader, follower = pair(b"m0")
    follower.disk.room = 0
    follower.step()
    assert state_of(follower) is FollowerState.DELAYED
    follower.disk.room = None
    follower.clock.advance(BACKOFF_MS)
    follower.replicate()
    same(leader, follower)


def test_a_log_that_failed_is_no_longer_followed() -> None:
    leader, follower = pair(b"m0")
    follower.replicate()
    follower.log().folder.fail(OSError(errno.EIO, "the disk is gone"))
    leader.produce(b"m1")
    follower.step()
    assert follower.failed_partitions == {KEY: True}
    assert follower.step() == Wait(None)


def test_an_unexpected_error_fails_the_partition_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = Replica(1), Replica(2)
    for key in (KEY, OTHER):
        leader.lead(0, key)
        leader.produce(b"m0", key=key)
    follower.follow(leader, 0, KEY, OTHER)
    leader.tamper = lambda response: setattr(response.responses[0].partitions[0], "high_watermark", "nonsense")
    follower.step()
    leader.tamper = None
    assert follower.failed_partitions == {KEY: False}
    assert follower.values(OTHER) == [b"m0"]


def test_a_truncation_that_failed_for_want_of_room_is_tried_again() -> None:
    leader, follower = Replica(1), Replica(2)
    follower.lead(0)
    follower.produce(b"f0")
    leader.lead(1)
    leader.produce(b"m0")
    follower.follow(leader, 1)
    follower.step()
    follower.disk.room = 0
    assert isinstance(follower.step(), TruncateLogs)
    if state_of(follower) is FollowerState.DELAYED:
        follower.disk.room = None
        follower.clock.advance(BACKOFF_MS)
    follower.replicate()
    same(leader, follower)


def test_a_log_without_epochs_is_truncated_to_its_high_watermark() -> None:
    leader, follower = pair(b"m0", b"m1")
    follower.replicate()
    follower.stop_following()
    follower.log().leader_epochs.clear()
    follower.log().update_high_watermark(1)
    follower.follow(leader, 0)
    assert follower.step() == TruncateLogs({KEY: Truncate(1)}, {KEY: followed_by(follower)})
    follower.replicate()
    assert follower.values() == [b"m0", b"m1"]


def test_a_truncation_of_many_partitions_is_one_action() -> None:
    leader, follower = Replica(1), Replica(2)
    keys = [TopicPartition("t", number) for number in range(20)]
    for key in keys:
        follower.lead(0, key)
        follower.produce(b"f0", key=key)
        leader.lead(1, key)
    follower.follow(leader, 1, *keys)
    assert kinds(follower.replicate()) == ["Fetch", "TruncateLogs", "Fetch", "Fetch"]
    assert all(follower.values(key) == [] for key in keys)


def test_a_leader_that_finds_a_divergence_where_there_is_nothing_to_truncate_is_not_asked_in_a_loop() -> None:
    leader, follower = pair(b"m0")
    follower.replicate()

    def diverge(response: FetchResponse) -> None:
        only(response).diverging_epoch = FetchResponse.EpochEndOffset(epoch=0, end_offset=1)

    leader.produce(b"m1")
    leader.tamper = diverge
    assert kinds(follower.replicate()) == ["Fetch", "TruncateLogs", "Wait"]
    assert follower.values() == [b"m0"]
    leader.tamper = None
    follower.clock.advance(FIRST_DELAY_MS)
    follower.replicate()
    same(leader, follower)


def test_what_was_removed_during_its_truncation_is_left_alone() -> None:
    leader, follower = Replica(1), Replica(2)
    follower.lead(0)
    follower.produce(b"f0")
    leader.lead(1)
    fetcher = follower.follow(leader, 1)
    follower.step()
    action = fetcher.next_action(0)
    assert isinstance(action, TruncateLogs)
    fetcher.drop(KEY)
    fetcher.truncated(action, follower.truncate(action.targets), 0)
    assert fetcher.next_action(0) == Wait(None)


# Flushes


def test_a_follower_flushes_what_its_topic_asks_for_before_it_fetches_on() -> None:
    leader, follower = pair(b"m0", b"m1")
    follower.log().update_config(LogConfig({"flush.messages": "2"}))
    assert kinds([follower.step(), follower.step()]) == ["Fetch", "FlushLogs"]
    assert follower.log().state.recovery_point == 2
    leader.produce(b"m2")
    assert "FlushLogs" not in kinds(follower.replicate())
    assert follower.log().state.recovery_point == 2
    leader.produce(b"m3")
    assert kinds(follower.replicate())[:2] == ["Fetch", "FlushLogs"]


@pytest.mark.parametrize("is_new_object", [False, True], ids=["another epoch", "stopped and started"])
def test_a_follower_of_another_leader_flushes_first_what_it_has_from_the_one_before(is_new_object: bool) -> None:
    leader, follower = pair(b"m0")
    follower.log().update_config(LogConfig({"flush.messages": "1"}))
    follower.step()
    assert (follower.values(), follower.log().state.recovery_point) == ([b"m0"], 0)
    follower.stop_following()
    if is_new_object:
        follower.manager.stop_replica(KEY)
    leader.lead(1, isr=(1, 2))
    follower.follow(leader, 1)
    assert kinds([follower.step(), follower.step()]) == ["FlushLogs", "Fetch"]
    assert follower.log().state.recovery_point == 1
    assert leader.log().state.high_watermark == 1


def test_a_flush_that_did_not_reach_the_end_is_repeated_before_the_next_fetch() -> None:
    leader, follower = pair(b"m0")
    follower.log().update_config(LogConfig({"flush.messages": "1"}))
    follower.step()
    fetcher = follower.fetcher
    assert fetcher is not None
    action = fetcher.next_action(0)
    assert isinstance(action, FlushLogs)
    fetcher.flushed(action, 0)
    assert fetcher.next_action(0) == Wait(FIRST_DELAY_MS)
    follower.clock.advance(FIRST_DELAY_MS)
    assert kinds(follower.replicate())[:2] == ["FlushLogs", "Fetch"]
    assert leader.log().state.high_watermark == 1


def test_a_follower_whose_flush_failed_is_no_longer_followed_and_acknowledges_nothing() -> None:
    leader, follower = pair(b"m0")
    follower.log().update_config(LogConfig({"flush.messages": "1"}))
    follower.step()
    follower.log().folder.fail(OSError(errno.EIO, "fsync failed"))
    fetcher = follower.fetcher
    assert fetcher is not None
    action = fetcher.next_action(0)
    assert isinstance(action, FlushLogs)
    fetcher.flushed(action, 0)
    assert follower.failed_partitions == {KEY: True}
    assert follower.step() == Wait(None)
    assert leader.log().state.high_watermark == 0


# The table of states


def test_every_state_can_be_left_for_fetching() -> None:
    reached = {FollowerState.FETCHING}
    for _ in MOVES:
        reached |= {state for state, targets in MOVES.items() if reached & set(targets)}
    assert reached == set(MOVES) == set(FollowerState)


def test_other_moves_than_those_of_the_table_are_refused() -> None:
    follower = Replica(2)
    for old, new in itertools.product(FollowerState, FollowerState):
        followed = Followed(follower.partition(), FetchFrom(1, 0, TOPIC_ID))
        followed.state = old
        if new in MOVES[old]:
            followed.move(new)
            assert followed.state is new
        else:
            with pytest.raises(ValueError, match=f"cannot become {new.value} while it is {old.value}"):
                followed.move(new)


def test_a_fetcher_follows_no_partition_at_first() -> None:
    replica = Replica(2)
    fetcher = Fetcher(1, replica.settings, replica, replica.manager.follower_quota)
    assert fetcher.is_idle
    assert fetcher.next_action(0) == Wait(None)

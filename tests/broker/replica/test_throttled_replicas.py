"""Throttled replicas: what a leader sends to them, and what a follower fetches, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.broker.replica.follower.fetcher_actions import Fetch, Wait
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings
from odradek.broker.replica.quota.replication_quota import UNLIMITED
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from tests.broker.replica.harness import T0, Fetched, ReplicaHarness, records_of
from tests.broker.replica.replicas import Replica
from tests.table_settings import of_table

T1 = TopicPartition("t", 1)
KEY = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 0)
FOLLOWER = {"replica_id": 2, "min_bytes": 1, "max_wait_ms": 500}
FOLLOWERS = "follower.replication.throttled.replicas"


class Leader:
    """Broker 0 leads partitions; broker 1 is in sync, broker 2 is not."""

    def __init__(self, harness: ReplicaHarness, limit: int = 100_000) -> None:
        self.harness = harness
        self.quota = harness.manager.leader_quota
        self.quota.set_limit(limit)

    def lead(self, *keys: TopicPartition, batches: int = 5, size: int = 20_000, listed: str = "*") -> None:
        for key in keys:
            self.harness.lead(key, replicas=(0, 1, 2), isr=(0, 1), leader_replication_throttled_replicas=listed)
            for _ in range(batches):
                self.harness.produce(self.harness.batch_of_bytes(size), key)

    def fetch(self, *keys: TopicPartition, offset: int = 0, **how: Any) -> Fetched:
        targets = [FetchTarget(key, offset, 1 << 20, log_start_offset=0) for key in keys or (T0,)]
        return self.harness.fetch(*targets, **(FOLLOWER | how))


@pytest.fixture
def leader(harness: ReplicaHarness) -> Leader:
    return Leader(harness)


def test_a_follower_out_of_sync_gets_nothing_while_the_limit_is_exceeded(leader: Leader) -> None:
    leader.lead(T0)
    leader.quota.record(200_000)
    fetch = leader.fetch()
    assert not fetch.is_answered
    leader.harness.advance(leader.quota.wait_ms)
    leader.harness.advance(500)
    assert fetch.records == b""
    leader.harness.clock.advance(20_000)
    assert leader.fetch().records


def test_a_follower_in_sync_is_not_throttled_but_counts(leader: Leader) -> None:
    leader.lead(T0)
    leader.quota.record(200_000)
    before = leader.quota.byte_rate
    assert len(leader.fetch(replica_id=1).records) == 100_000
    assert leader.quota.byte_rate == before + 100_000


def test_consumers_are_neither_throttled_nor_counted(leader: Leader) -> None:
    leader.lead(T0)
    leader.quota.record(200_000)
    fetch = leader.fetch(replica_id=-1, max_wait_ms=0)
    assert fetch.is_answered
    assert leader.quota.byte_rate == 200_000


def test_partitions_that_are_not_listed_are_neither_throttled_nor_counted(leader: Leader) -> None:
    leader.lead(T0, T1, listed="1:0,0:2")
    leader.quota.record(200_000)
    fetch = leader.fetch(T1, T0)
    assert records_of(fetch.partitions[T1]) == b""
    assert len(records_of(fetch.partitions[T0])) == 100_000
    assert leader.quota.byte_rate == 200_000


def test_one_fetch_gets_no_more_than_a_share_from_all_throttled_partitions(leader: Leader) -> None:
    leader.quota.set_limit(400_000)  # a share is 44,000 bytes
    leader.lead(T0, T1)
    fetch = leader.fetch(T0, T1)
    sizes = [len(records_of(data)) for data in fetch.partitions.values()]
    assert sizes == [40_000, 0]
    assert leader.quota.byte_rate == 40_000


def test_a_fetch_gets_at_least_one_batch_however_low_the_limit_is(leader: Leader) -> None:
    leader.quota.set_limit(10)
    leader.lead(T0)
    assert len(leader.fetch().records) == 20_000


def test_what_is_held_back_does_not_count_for_min_bytes(leader: Leader) -> None:
    leader.lead(T0)
    leader.lead(T1, batches=0, listed="")
    leader.quota.record(10_000_000)
    fetch = leader.fetch(T0, T1)
    assert not fetch.is_answered
    leader.harness.produce(leader.harness.batch_of_bytes(1000), T1)
    assert [len(records_of(data)) for data in fetch.partitions.values()] == [0, 1000]


def test_a_waiting_fetch_goes_on_when_the_limit_allows(leader: Leader) -> None:
    """In Kafka it waits for as long as the follower has said."""
    leader.lead(T0)
    leader.quota.record(70_000)
    wait_ms = leader.quota.wait_ms
    assert wait_ms < 500
    fetch = leader.fetch()
    leader.harness.advance(wait_ms - 5)
    assert not fetch.is_answered
    leader.harness.advance(10)
    assert fetch.records


def test_a_fetch_of_a_session_is_throttled_too(leader: Leader) -> None:
    leader.lead(T0)
    first = leader.fetch(session=(0, 0))
    assert first.records
    leader.quota.record(300_000)
    end = leader.fetch(session=first.session)
    assert not end.is_answered
    assert not leader.harness.manager.partitions.find(T0).watchers
    leader.harness.produce(leader.harness.batch_of_bytes(1000))
    assert not end.is_answered
    leader.harness.advance(501)
    assert end.partitions == {}
    leader.harness.clock.advance(30_000)
    assert leader.fetch(session=(first.session[0], 2)).records


def test_an_offset_out_of_range_is_refused_while_the_limit_is_exceeded(leader: Leader) -> None:
    leader.lead(T0)
    leader.quota.record(300_000)
    assert leader.fetch(offset=1000).data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_leader_without_a_limit_counts_nothing(leader: Leader) -> None:
    leader.quota.set_limit(UNLIMITED)
    leader.lead(T0)
    assert len(leader.fetch().records) == 100_000
    assert leader.quota.byte_rate == 0


# Followers


class Pair:
    """Broker 1 leads, broker 2 follows; both have the same clock."""

    def __init__(self, *keys: TopicPartition, limit: int = 10_000) -> None:
        self.leader = Replica(1, settings=of_table(FetcherSettings))
        self.follower = Replica(
            2, clock=self.leader.clock, settings=of_table(FetcherSettings, replica_fetch_wait_max_ms=0)
        )
        self.quota = self.follower.manager.follower_quota
        self.quota.set_limit(limit)
        for key in keys:
            self.leader.lead(0, key)
        self.follower.follow(self.leader, 0, *keys)

    def throttle(self, *keys: TopicPartition, listed: str = "*") -> None:
        for key in keys:
            self.follower.log(key).update_config(LogConfig({FOLLOWERS: listed}))

    def fill(self, key: TopicPartition, batches: int = 20, size: int = 1000) -> None:
        for _ in range(batches):
            self.leader.produce(b"v" * size, key=key)

    def run(self, seconds: float) -> int:
        """Lets the follower fetch for so long, a millisecond for each request. Returns the number of actions."""
        clock, actions = self.leader.clock, 0
        end = clock.now_ms() + seconds * 1000
        while clock.now_ms() < end:
            action = self.follower.step()
            actions += 1
            clock.advance(
                max(action.until_ms - clock.now_ms(), 1) if isinstance(action, Wait) and action.until_ms else 1
            )
        return actions

    def has(self, key: TopicPartition) -> int:
        return self.follower.log(key).segments.size_in_bytes


def names(action: object) -> list[tuple[str, list[int]]]:
    assert isinstance(action, Fetch)
    return [(topic.topic, [each.partition for each in topic.partitions]) for topic in action.request.topics]


def test_a_throttled_follower_receives_what_the_limit_allows() -> None:
    pair = Pair(KEY)
    pair.throttle(KEY)
    pair.fill(KEY, 300)
    pair.run(10)
    assert 0.95 * 100_000 < pair.has(KEY) < 1.07 * 100_000
    pair.run(10)
    assert 0.95 * 200_000 < pair.has(KEY) < 1.07 * 200_000
    assert pair.quota.byte_rate == pytest.approx(10_000, rel=0.1)


def test_a_throttled_follower_waits_rather_than_asks_again_and_again() -> None:
    pair = Pair(KEY)
    pair.throttle(KEY)
    pair.fill(KEY, 300)
    pair.run(2)
    assert pair.run(10) < 400


def test_a_follower_that_is_not_listed_receives_all_at_once() -> None:
    pair = Pair(KEY, OTHER)
    pair.throttle(KEY)
    pair.throttle(OTHER, listed="0:1,1:2")
    for key in (KEY, OTHER):
        pair.fill(key, 100)
    pair.run(1)
    assert pair.has(KEY) < 20_000
    assert pair.has(OTHER) == pair.leader.log(OTHER).segments.size_in_bytes


def test_a_follower_in_sync_is_not_held_back_but_counts() -> None:
    pair = Pair(KEY)
    pair.run(0.1)
    pair.throttle(KEY)
    pair.quota.record(1_000_000)
    pair.fill(KEY, 1)
    pair.run(0.1)
    assert pair.has(KEY) == pair.leader.log(KEY).segments.size_in_bytes > 0
    assert pair.quota.byte_rate > 1_000_000


def test_a_raised_limit_takes_effect_at_the_next_decision() -> None:
    pair = Pair(KEY)
    pair.throttle(KEY)
    pair.fill(KEY, 300)
    pair.run(2)
    pair.quota.record(100_000)
    assert isinstance(pair.follower.step(), Wait)
    pair.quota.set_limit(UNLIMITED)
    assert names(pair.follower.step()) == [("orders", [0])]
    pair.run(0.1)
    assert pair.has(KEY) == pair.leader.log(KEY).segments.size_in_bytes


def test_a_replica_that_is_taken_off_the_list_goes_on() -> None:
    pair = Pair(KEY)
    pair.throttle(KEY)
    pair.fill(KEY, 300)
    pair.run(2)
    pair.throttle(KEY, listed="")
    pair.run(0.6)
    assert pair.has(KEY) == pair.leader.log(KEY).segments.size_in_bytes


def test_a_held_partition_that_is_removed_is_not_fetched_again() -> None:
    pair = Pair(KEY, OTHER)
    pair.throttle(KEY)
    pair.fill(KEY, 300)
    pair.run(2)
    pair.quota.record(100_000)
    pair.run(0.1)
    pair.follower.stop_following(KEY)
    pair.quota.set_limit(UNLIMITED)
    pair.fill(OTHER, 1)
    for _ in range(3):
        assert all(topic != "orders" for topic, _ in names(pair.follower.step()))

from __future__ import annotations

from operator import attrgetter
from typing import Any, cast

import pytest

from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.quota.replication_quota import (
    LONGEST_WAIT_MS,
    SHORTEST_WAIT_MS,
    UNLIMITED,
    ReplicationQuota,
    throttled_partitions,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock

LEADERS = "leader.replication.throttled.replicas"
MB = 1_000_000


class Hosted:
    """What a quota sees of a partition."""

    def __init__(self, topic: str, number: int, listed: str) -> None:
        self.topic_partition = TopicPartition(topic, number)
        self.log: Any = type("Log", (), {})()
        self.list(listed)

    def list(self, listed: str) -> None:
        self.log.config = LogConfig({LEADERS: listed})


class Clocked:
    """A quota of broker 1 and its clock."""

    def __init__(self, limit: int = UNLIMITED, windows: int = 11, window_ms: int = 1000) -> None:
        self.clock = ManualClock(now_ms=50_000)
        listed = attrgetter("leader_replication_throttled_replicas")
        self.quota = ReplicationQuota(self.clock, 1, listed, windows=windows, window_ms=window_ms)
        self.quota.set_limit(limit)
        self.used: list[tuple[int, int]] = []

    def throttles(self, hosted: Hosted) -> bool:
        return self.quota.is_throttled(cast(Partition, hosted))

    def is_exceeded(self) -> bool:
        return self.quota.is_exceeded

    def use_all(self, milliseconds: int, *, most: int = 10 * MB, pause_ms: int = 0) -> None:
        """Uses what is allowed, for as long: a fetch of a share or of `most` bytes each millisecond in which the limit
        is not exceeded; with `pause_ms`, it looks only now and then.
        """
        end = self.clock.now_ms() + milliseconds
        while self.clock.now_ms() < end:
            if not self.quota.is_exceeded:
                size = min(most, self.quota.share)
                self.quota.record(size)
                self.used.append((self.clock.now_ms(), size))
            self.clock.advance(1 + (pause_ms if pause_ms and self.quota.is_exceeded else 0))

    def rates_over_ten_seconds(self) -> list[float]:
        """The bytes per second of every ten seconds that end with a use, from ten seconds after the first on."""
        begin = self.used[0][0] + 10_000
        ends = [at for at, _ in self.used if at >= begin]
        return [sum(size for at, size in self.used if end - 10_000 < at <= end) / 10 for end in ends]


def test_a_quota_without_a_limit_is_never_exceeded() -> None:
    clocked = Clocked()
    assert not clocked.quota.is_limited
    assert not clocked.is_exceeded()
    assert clocked.quota.byte_rate == 0


@pytest.mark.parametrize(
    ("listed", "throttled"),
    [
        ([], set()),
        ([""], set()),
        (["0:1"], {0}),
        (["0:1", "0:2", "7:1", "8:2"], {0, 7}),
        (["3:2"], set()),
        (["", "4:1"], {4}),
    ],
)
def test_a_list_throttles_the_partitions_that_it_names_for_the_broker(listed: list[str], throttled: set[int]) -> None:
    assert throttled_partitions(listed, 1) == frozenset(throttled)


def test_a_star_throttles_all_partitions() -> None:
    assert throttled_partitions(["*"], 1) is None
    clocked = Clocked(1)
    assert clocked.throttles(Hosted("t", 99, "*"))


def test_a_changed_list_takes_effect_at_once() -> None:
    clocked = Clocked(1)
    partition, other = Hosted("t", 3, "3:1"), Hosted("u", 3, "")
    assert clocked.throttles(partition)
    assert not clocked.throttles(other)
    partition.list("4:1")
    other.list("*")
    assert not clocked.throttles(partition)
    assert clocked.throttles(other)
    partition.list("")
    assert not clocked.throttles(partition)


@pytest.mark.parametrize("limit", [40_000, MB, 20 * MB, 300 * MB])
@pytest.mark.parametrize("pause_ms", [0, 130])
def test_the_average_over_ten_seconds_is_the_limit(limit: int, pause_ms: int) -> None:
    clocked = Clocked(limit)
    clocked.use_all(45_000, pause_ms=pause_ms)
    rates = clocked.rates_over_ten_seconds()
    assert 0.93 * limit < min(rates)
    assert max(rates) < 1.07 * limit


def test_what_was_used_ahead_at_first_is_made_up_for_within_the_first_windows() -> None:
    clocked = Clocked(MB)
    clocked.use_all(5000)
    assert sum(size for _, size in clocked.used) <= 5 * MB + clocked.quota.share


def test_what_was_left_over_is_used_later_but_not_all_at_once() -> None:
    clocked = Clocked(MB)
    clocked.use_all(3000)
    clocked.clock.advance(5000)
    begin = clocked.clock.now_ms()
    clocked.use_all(1000)
    assert sum(size for at, size in clocked.used if at >= begin) < 1.7 * MB
    clocked.use_all(30_000)
    assert max(clocked.rates_over_ten_seconds()) < 1.07 * MB


def test_one_batch_that_is_larger_than_the_limit_is_paid_off() -> None:
    clocked = Clocked(50_000)
    clocked.quota.record(MB)
    clocked.clock.advance(19_000)
    assert clocked.is_exceeded()
    clocked.clock.advance(1000)
    assert not clocked.is_exceeded()


def test_a_higher_limit_lets_more_through_at_once_and_a_lower_one_less() -> None:
    clocked = Clocked(MB)
    clocked.use_all(20_000)
    clocked.quota.set_limit(4 * MB)
    begin = clocked.clock.now_ms()
    clocked.use_all(20_000)
    after = [(at, size) for at, size in clocked.used if at >= begin]
    assert 4 * MB < sum(size for at, size in after if at < begin + 1000) < 7 * MB
    assert 0.9 * 80 * MB < sum(size for _, size in after) < 1.1 * 80 * MB + 11 * 3 * MB
    clocked.quota.set_limit(MB)
    assert clocked.is_exceeded()
    clocked.quota.set_limit(UNLIMITED)
    assert not clocked.is_exceeded()


def test_a_limit_of_zero_lets_one_fetch_through_and_then_nothing() -> None:
    clocked = Clocked(0)
    assert not clocked.is_exceeded()
    assert clocked.quota.share == 1
    clocked.quota.record(100)
    assert clocked.is_exceeded()
    assert clocked.quota.wait_ms == LONGEST_WAIT_MS


def test_the_wait_ends_when_the_limit_is_no_longer_exceeded() -> None:
    clocked = Clocked(MB)
    clocked.quota.record(MB + 200_000)
    for _ in range(10):
        if not clocked.is_exceeded():
            break
        wait_ms = clocked.quota.wait_ms
        assert SHORTEST_WAIT_MS <= wait_ms <= LONGEST_WAIT_MS
        clocked.clock.advance(wait_ms)
    assert not clocked.is_exceeded()
    assert clocked.clock.now_ms() - 50_000 <= 1200 + SHORTEST_WAIT_MS


def test_the_windows_are_settings() -> None:
    short = Clocked(MB, windows=2, window_ms=1000)
    assert short.quota.share == 20_000
    short.quota.record(3 * MB)
    short.clock.advance(2000)
    assert short.quota.byte_rate == 0

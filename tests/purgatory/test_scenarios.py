"""The two usual examples of a purgatory, on a manual clock."""

from odradek.protocol.errors import ErrorCode
from odradek.purgatory import (
    DelayedFetch,
    DelayedProduce,
    FetchExpirations,
    PartitionExpirations,
    ProducePartitionStatus,
)
from tests.purgatory.harness import PurgatoryHarness
from tests.purgatory.partition_model import PartitionModel, Target


def test_a_fetch_of_10_kb_with_2_kb_present_returns_17_kb_after_15_kb_are_appended(harness: PurgatoryHarness) -> None:
    partition = PartitionModel(harness, size=2 * 1024)
    target = Target(partition.topic_partition, 0)
    answers: list[int] = []
    expirations = FetchExpirations()
    fetch = DelayedFetch(500, 10 * 1024, [target], partition.progress, partition.reader(target, answers), expirations)
    assert not harness.purgatory.try_complete_else_watch(fetch, [partition.topic_partition])

    harness.pass_time(100)
    assert answers == []
    partition.append(15 * 1024)
    assert answers == []
    harness.loop.turn()
    assert answers == [17 * 1024]
    assert harness.clock.now_ms() == 100

    assert (harness.purgatory.delayed, harness.purgatory.watched, harness.timer.size) == (0, 0, 0)
    harness.pass_time(1_000)
    assert answers == [17 * 1024]
    assert (expirations.consumer, expirations.follower) == (0, 0)


def test_the_same_fetch_returns_2_kb_after_500_ms_if_nothing_is_appended(harness: PurgatoryHarness) -> None:
    partition = PartitionModel(harness, size=2 * 1024)
    target = Target(partition.topic_partition, 0)
    answers: list[int] = []
    expirations = FetchExpirations()
    fetch = DelayedFetch(500, 10 * 1024, [target], partition.progress, partition.reader(target, answers), expirations)
    harness.purgatory.try_complete_else_watch(fetch, [partition.topic_partition])
    harness.pass_time(499)
    partition.append(1)
    harness.loop.until_idle()
    assert answers == []
    harness.pass_time(1)
    assert answers == [2 * 1024 + 1]
    assert (expirations.consumer, expirations.follower) == (1, 0)


def test_a_produce_at_1001_waits_until_followers_at_950_and_960_have_it(harness: PurgatoryHarness) -> None:
    partition = PartitionModel(harness, {"B": 950, "C": 960}, size=1001)
    answers: list[ErrorCode] = []
    statuses = {partition.topic_partition: ProducePartitionStatus(1001)}
    produce = DelayedProduce(
        30_000, statuses, partition.check, lambda done: answers.extend(status.error for status in done.values())
    )
    assert not harness.purgatory.try_complete_else_watch(produce, [partition.topic_partition])
    assert partition.high_watermark == 950

    harness.pass_time(3)
    partition.follower_fetched("B", 1001)
    harness.loop.until_idle()
    assert partition.high_watermark == 960
    assert answers == []
    assert harness.purgatory.delayed == 1

    harness.pass_time(5)
    partition.follower_fetched("C", 1001)
    harness.loop.turn()
    assert answers == [ErrorCode.NONE]
    assert (harness.clock.now_ms(), harness.timer.size, harness.purgatory.delayed) == (8, 0, 0)


def test_the_same_produce_returns_request_timed_out_after_30_s(harness: PurgatoryHarness) -> None:
    partition = PartitionModel(harness, {"B": 950, "C": 960}, size=1001)
    answers: list[ErrorCode] = []
    expirations = PartitionExpirations()
    produce = DelayedProduce(
        30_000,
        {partition.topic_partition: ProducePartitionStatus(1001)},
        partition.check,
        lambda done: answers.extend(status.error for status in done.values()),
        expirations,
    )
    harness.purgatory.try_complete_else_watch(produce, [partition.topic_partition])
    partition.follower_fetched("B", 1001)
    harness.pass_time(29_999)
    assert answers == []
    harness.pass_time(1)
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]
    assert (expirations.total, expirations.by_partition) == (1, {partition.topic_partition: 1})
    partition.follower_fetched("C", 1001)
    harness.loop.until_idle()
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]

"""The two stories by which purgatories are told, on a manual clock."""

from odradek.protocol.errors import ErrorCode
from odradek.purgatory import (
    DelayedFetch,
    DelayedProduce,
    FetchExpirations,
    PartitionExpirations,
    ProducePartitionStatus,
)
from tests.purgatory.partition_model import PartitionModel, Target
from tests.purgatory.rooms import PurgatoryRoom


def test_a_fetch_of_10_kb_with_2_kb_present_returns_17_kb_after_15_kb_are_appended(room: PurgatoryRoom) -> None:
    partition = PartitionModel(room, size=2 * 1024)
    target = Target(partition.topic_partition, 0)
    answers: list[int] = []
    expirations = FetchExpirations()
    fetch = DelayedFetch(500, 10 * 1024, [target], partition.progress, partition.reader(target, answers), expirations)
    assert not room.purgatory.try_complete_else_watch(fetch, [partition.topic_partition])

    room.pass_time(100)
    assert answers == []
    partition.append(15 * 1024)
    assert answers == []
    room.loop.turn()
    assert answers == [17 * 1024]
    assert room.clock.now_ms() == 100

    assert (room.purgatory.delayed, room.purgatory.watched, room.timer.size) == (0, 0, 0)
    room.pass_time(1_000)
    assert answers == [17 * 1024]
    assert (expirations.consumer, expirations.follower) == (0, 0)


def test_the_same_fetch_returns_2_kb_after_500_ms_if_nothing_is_appended(room: PurgatoryRoom) -> None:
    partition = PartitionModel(room, size=2 * 1024)
    target = Target(partition.topic_partition, 0)
    answers: list[int] = []
    expirations = FetchExpirations()
    fetch = DelayedFetch(500, 10 * 1024, [target], partition.progress, partition.reader(target, answers), expirations)
    room.purgatory.try_complete_else_watch(fetch, [partition.topic_partition])
    room.pass_time(499)
    partition.append(1)
    room.loop.until_idle()
    assert answers == []
    room.pass_time(1)
    assert answers == [2 * 1024 + 1]
    assert (expirations.consumer, expirations.follower) == (1, 0)


def test_a_produce_at_1001_waits_until_followers_at_950_and_960_have_it(room: PurgatoryRoom) -> None:
    partition = PartitionModel(room, {"B": 950, "C": 960}, size=1001)
    answers: list[ErrorCode] = []
    statuses = {partition.topic_partition: ProducePartitionStatus(1001)}
    produce = DelayedProduce(
        30_000, statuses, partition.check, lambda done: answers.extend(status.error for status in done.values())
    )
    assert not room.purgatory.try_complete_else_watch(produce, [partition.topic_partition])
    assert partition.high_watermark == 950

    room.pass_time(3)
    partition.follower_fetched("B", 1001)
    room.loop.until_idle()
    assert partition.high_watermark == 960
    assert answers == []
    assert room.purgatory.delayed == 1

    room.pass_time(5)
    partition.follower_fetched("C", 1001)
    room.loop.turn()
    assert answers == [ErrorCode.NONE]
    assert (room.clock.now_ms(), room.timer.size, room.purgatory.delayed) == (8, 0, 0)


def test_the_same_produce_returns_request_timed_out_after_30_s(room: PurgatoryRoom) -> None:
    partition = PartitionModel(room, {"B": 950, "C": 960}, size=1001)
    answers: list[ErrorCode] = []
    expirations = PartitionExpirations()
    produce = DelayedProduce(
        30_000,
        {partition.topic_partition: ProducePartitionStatus(1001)},
        partition.check,
        lambda done: answers.extend(status.error for status in done.values()),
        expirations,
    )
    room.purgatory.try_complete_else_watch(produce, [partition.topic_partition])
    partition.follower_fetched("B", 1001)
    room.pass_time(29_999)
    assert answers == []
    room.pass_time(1)
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]
    assert (expirations.total, expirations.by_partition) == (1, {partition.topic_partition: 1})
    partition.follower_fetched("C", 1001)
    room.loop.until_idle()
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]

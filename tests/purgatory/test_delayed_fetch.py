"""Cases A to H of DelayedFetch, and its timeout."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.purgatory import ANSWER_NOW, DelayedFetch, FetchExpirations
from tests.purgatory.harness import PurgatoryHarness
from tests.purgatory.partition_model import PartitionModel, Target


class Fetch:
    """A parked fetch from the end of a partition with 1,000 bytes."""

    def __init__(
        self, harness: PurgatoryHarness, min_bytes: int = 1, is_from_follower: bool = False, **asked: int
    ) -> None:
        self.partition = PartitionModel(harness, size=1_000)
        self.target = Target(self.partition.topic_partition, **{"offset": 1_000, **asked})
        self.answers: list[int] = []
        self.expirations = FetchExpirations()
        self.operation = DelayedFetch(
            500,
            min_bytes,
            [self.target],
            self.partition.progress,
            self.partition.reader(self.target, self.answers),
            self.expirations,
            is_from_follower,
        )
        self.completed_at_once = harness.purgatory.try_complete_else_watch(
            self.operation, [self.partition.topic_partition]
        )
        self.harness = harness

    def is_answered(self) -> bool:
        self.harness.loop.until_idle()
        return bool(self.answers)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ErrorCode.NOT_LEADER_OR_FOLLOWER, id="A no longer the leader, B no longer a replica"),
        pytest.param(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="C no longer known"),
        pytest.param(ErrorCode.KAFKA_STORAGE_ERROR, id="D its directory is offline"),
    ],
)
def test_a_failed_partition_completes_the_fetch_at_once(harness: PurgatoryHarness, error: ErrorCode) -> None:
    fetch = Fetch(harness, min_bytes=1_000_000)
    fetch.partition.fail(error)
    assert fetch.is_answered()


def test_case_e_a_fenced_leader_epoch_completes_the_fetch_at_once(harness: PurgatoryHarness) -> None:
    fetch = Fetch(harness)
    fetch.partition.leader_epoch = 1
    fetch.partition.append(0)
    assert fetch.is_answered()


def test_case_f_any_data_in_an_older_segment_completes_the_fetch(harness: PurgatoryHarness) -> None:
    fetch = Fetch(harness, min_bytes=1_000_000)
    fetch.partition.append(5)
    assert not fetch.is_answered()
    fetch.partition.roll()
    fetch.partition.append(5)
    assert fetch.is_answered()


def test_case_f_a_roll_without_new_data_does_not_complete_the_fetch(harness: PurgatoryHarness) -> None:
    fetch = Fetch(harness)
    fetch.partition.roll()
    fetch.partition.append(0)
    assert not fetch.is_answered()


def test_case_f_a_truncation_below_the_fetch_offset_completes_the_fetch(harness: PurgatoryHarness) -> None:
    fetch = Fetch(harness)
    fetch.partition.append(-10)
    assert fetch.is_answered()


def test_case_g_the_bytes_of_all_partitions_are_added_up(harness: PurgatoryHarness) -> None:
    first, second = PartitionModel(harness), PartitionModel(harness)
    models = {0: first, 1: second}
    asked: list[int] = []

    def progress(number: int) -> int:
        asked.append(number)
        return models[number].progress(Target(first.topic_partition, 0))

    done: list[bool] = []
    fetch = DelayedFetch(500, 100, [0, 1], progress, lambda: done.append(True))
    harness.purgatory.try_complete_else_watch(fetch, [first.topic_partition])
    first.append(60)
    harness.loop.until_idle()
    assert not done
    second.append(40)
    harness.loop.until_idle()
    assert done


def test_case_g_a_partition_counts_at_most_its_own_maximum(harness: PurgatoryHarness) -> None:
    fetch = Fetch(harness, min_bytes=100, max_bytes=99)
    fetch.partition.append(1_000)
    assert not fetch.is_answered()


def test_case_g_a_fetch_with_enough_bytes_does_not_check_further_partitions(harness: PurgatoryHarness) -> None:
    asked: list[int] = []

    def progress(number: int) -> int:
        asked.append(number)
        return 50

    fetch = DelayedFetch(500, 100, range(10), progress, lambda: None)
    assert harness.purgatory.try_complete_else_watch(fetch, ["key"])
    assert asked == [0, 1]


def test_case_h_a_diverging_epoch_completes_the_fetch_at_once(harness: PurgatoryHarness) -> None:
    fetch = Fetch(harness, min_bytes=1_000_000, last_fetched_epoch_end=990)
    assert fetch.completed_at_once


def test_a_fetch_with_min_bytes_0_never_waits(harness: PurgatoryHarness) -> None:
    assert Fetch(harness, min_bytes=0).completed_at_once


def test_answer_now_completes_the_fetch_whatever_the_bytes_before_it(harness: PurgatoryHarness) -> None:
    found = {0: 5, 1: ANSWER_NOW}
    fetch = DelayedFetch(500, 1_000, [0, 1], lambda number: found[number], lambda: None)
    assert harness.purgatory.try_complete_else_watch(fetch, ["key"])


def test_timeouts_of_consumers_and_followers_are_counted_separately(harness: PurgatoryHarness) -> None:
    consumer, follower = Fetch(harness), Fetch(harness, is_from_follower=True)
    harness.pass_time(500)
    assert consumer.answers == [0]
    assert (consumer.expirations.consumer, consumer.expirations.follower) == (1, 0)
    assert (follower.expirations.consumer, follower.expirations.follower) == (0, 1)


def test_a_delayed_fetch_has_a_readable_repr(harness: PurgatoryHarness) -> None:
    assert repr(Fetch(harness).operation) == "DelayedFetch(max_wait_ms=500, min_bytes=1, 1 partitions, consumer)"

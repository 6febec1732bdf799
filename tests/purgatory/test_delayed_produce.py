"""Cases A to C.2 of DelayedProduce, and its timeout."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import DelayedProduce, PartitionExpirations, ProducePartitionStatus
from tests.purgatory.harness import PurgatoryHarness

A, B, C = (TopicPartition("topic", number) for number in range(3))


class Leader:
    """Answers `check` from a table; partitions that are not in it wait."""

    def __init__(self) -> None:
        self.answers: dict[TopicPartition, tuple[bool, ErrorCode]] = {}
        self.asked: list[tuple[TopicPartition, int]] = []

    def check(self, topic_partition: TopicPartition, required_offset: int) -> tuple[bool, ErrorCode]:
        self.asked.append((topic_partition, required_offset))
        return self.answers.get(topic_partition, (False, ErrorCode.NONE))


class Produce:
    """A parked produce to three partitions, and its responses."""

    def __init__(self, harness: PurgatoryHarness, **errors: ErrorCode) -> None:
        self.harness = harness
        self.leader = Leader()
        self.answers: list[dict[TopicPartition, ErrorCode]] = []
        self.expirations = PartitionExpirations()
        named = {"a": A, "b": B, "c": C}
        self.statuses = {
            key: ProducePartitionStatus(100 + key.partition, errors.get(name, ErrorCode.NONE), result=name)
            for name, key in named.items()
        }
        self.operation = DelayedProduce(1_500, self.statuses, self.leader.check, self.answered, self.expirations)
        self.completed_at_once = harness.purgatory.try_complete_else_watch(self.operation, [A, B, C])

    def answered(self, statuses: dict[TopicPartition, ProducePartitionStatus]) -> None:
        self.answers.append({key: status.error for key, status in statuses.items()})

    def reached(self, key: TopicPartition, error: ErrorCode = ErrorCode.NONE) -> None:
        self.leader.answers[key] = (error == ErrorCode.NONE, error)
        self.harness.happened(key)  # type: ignore[arg-type]


def test_a_produce_waits_until_every_partition_has_enough_replicas(harness: PurgatoryHarness) -> None:
    produce = Produce(harness)
    produce.reached(A)
    produce.reached(C)
    assert produce.answers == []
    produce.reached(B)
    assert produce.answers == [{A: ErrorCode.NONE, B: ErrorCode.NONE, C: ErrorCode.NONE}]


def test_only_pending_partitions_are_checked_for_their_required_offset(harness: PurgatoryHarness) -> None:
    produce = Produce(harness)
    assert produce.leader.asked == [(A, 100), (B, 101), (C, 102)]
    produce.reached(A)
    produce.leader.asked.clear()
    produce.reached(B)
    assert produce.leader.asked == [(B, 101), (C, 102)]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="A the replica is no longer here"),
        pytest.param(ErrorCode.NOT_LEADER_OR_FOLLOWER, id="B it is no longer the leader"),
        pytest.param(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, id="C1 too few replicas in sync"),
    ],
)
def test_a_failed_partition_keeps_its_error_and_the_others_are_waited_for(
    harness: PurgatoryHarness, error: ErrorCode
) -> None:
    produce = Produce(harness)
    produce.reached(A, error)
    assert produce.answers == []
    produce.reached(B)
    produce.reached(C)
    assert produce.answers == [{A: error, B: ErrorCode.NONE, C: ErrorCode.NONE}]


def test_a_partition_whose_append_failed_is_not_waited_for(harness: PurgatoryHarness) -> None:
    produce = Produce(harness, a=ErrorCode.MESSAGE_TOO_LARGE)
    assert (A, 100) not in produce.leader.asked
    produce.reached(B)
    produce.reached(C)
    assert produce.answers == [{A: ErrorCode.MESSAGE_TOO_LARGE, B: ErrorCode.NONE, C: ErrorCode.NONE}]


def test_a_produce_whose_partitions_all_failed_completes_at_once(harness: PurgatoryHarness) -> None:
    error = ErrorCode.CORRUPT_MESSAGE
    produce = Produce(harness, a=error, b=error, c=error)
    assert produce.completed_at_once
    assert produce.answers == [{A: error, B: error, C: error}]


def test_only_pending_partitions_fail_with_the_timeout(harness: PurgatoryHarness) -> None:
    produce = Produce(harness, a=ErrorCode.MESSAGE_TOO_LARGE)
    produce.reached(B)
    harness.pass_time(1_500)
    assert produce.answers == [
        {A: ErrorCode.MESSAGE_TOO_LARGE, B: ErrorCode.NONE, C: ErrorCode.REQUEST_TIMED_OUT},
    ]
    assert (produce.expirations.total, produce.expirations.by_partition) == (1, {C: 1})
    produce.expirations.forget(C)
    assert (produce.expirations.total, produce.expirations.by_partition) == (1, {})


def test_a_shutdown_completes_a_produce_with_timeouts_that_are_not_counted(harness: PurgatoryHarness) -> None:
    produce = Produce(harness)
    produce.reached(A)
    harness.purgatory.shutdown()
    assert produce.answers == [
        {A: ErrorCode.NONE, B: ErrorCode.REQUEST_TIMED_OUT, C: ErrorCode.REQUEST_TIMED_OUT},
    ]
    assert (produce.expirations.total, harness.purgatory.expired) == (0, 0)


def test_a_status_contains_the_callers_result(harness: PurgatoryHarness) -> None:
    assert [status.result for status in Produce(harness).statuses.values()] == ["a", "b", "c"]


def test_a_delayed_produce_has_a_readable_repr(harness: PurgatoryHarness) -> None:
    text = repr(Produce(harness, a=ErrorCode.MESSAGE_TOO_LARGE).operation)
    assert "timeout_ms=1500" in text
    assert "required_offset=101, pending" in text
    assert "required_offset=100, MESSAGE_TOO_LARGE" in text

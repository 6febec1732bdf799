"""Both cases of DelayedDeleteRecords, and its timeout."""

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import DelayedDeleteRecords, DeleteRecordsPartitionStatus, PartitionExpirations
from tests.purgatory.harness import PurgatoryHarness

A, B = TopicPartition("topic", 0), TopicPartition("topic", 1)
Answer = dict[TopicPartition, tuple[ErrorCode, int]]


class Deletion:
    """A parked DeleteRecords up to 100 and 200, and its responses."""

    def __init__(self, harness: PurgatoryHarness, error_of_a: ErrorCode = ErrorCode.NONE) -> None:
        self.harness = harness
        self.low_watermarks: dict[TopicPartition, tuple[int, ErrorCode]] = {}
        self.answers: list[Answer] = []
        self.expirations = PartitionExpirations()
        statuses = {A: DeleteRecordsPartitionStatus(100, error_of_a), B: DeleteRecordsPartitionStatus(200)}
        operation = DelayedDeleteRecords(1_000, statuses, self.check, self.answered, self.expirations)
        harness.purgatory.try_complete_else_watch(operation, [A, B])

    def check(self, topic_partition: TopicPartition) -> tuple[int, ErrorCode]:
        return self.low_watermarks.get(topic_partition, (0, ErrorCode.NONE))

    def answered(self, statuses: dict[TopicPartition, DeleteRecordsPartitionStatus]) -> None:
        self.answers.append({key: (status.error, status.low_watermark) for key, status in statuses.items()})

    def moved(self, key: TopicPartition, low_watermark: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.low_watermarks[key] = (low_watermark, error)
        self.harness.happened(key)  # type: ignore[arg-type]


def test_delete_records_returns_the_low_watermarks_once_all_reached_their_offsets(harness: PurgatoryHarness) -> None:
    deletion = Deletion(harness)
    deletion.moved(A, 100)
    deletion.moved(B, 199)
    assert deletion.answers == []
    deletion.moved(B, 205)
    assert deletion.answers == [{A: (ErrorCode.NONE, 100), B: (ErrorCode.NONE, 205)}]


def test_a_partition_that_fails_has_its_error_and_no_low_watermark(harness: PurgatoryHarness) -> None:
    deletion = Deletion(harness)
    deletion.moved(A, 7, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    deletion.moved(B, 200)
    assert deletion.answers == [{A: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), B: (ErrorCode.NONE, 200)}]


def test_a_partition_that_failed_at_first_is_not_waited_for(harness: PurgatoryHarness) -> None:
    deletion = Deletion(harness, ErrorCode.OFFSET_OUT_OF_RANGE)
    deletion.moved(B, 200)
    assert deletion.answers == [{A: (ErrorCode.OFFSET_OUT_OF_RANGE, -1), B: (ErrorCode.NONE, 200)}]


def test_pending_partitions_fail_with_the_timeout(harness: PurgatoryHarness) -> None:
    deletion = Deletion(harness)
    deletion.moved(A, 100)
    harness.pass_time(1_000)
    assert deletion.answers == [{A: (ErrorCode.NONE, 100), B: (ErrorCode.REQUEST_TIMED_OUT, -1)}]
    assert (deletion.expirations.total, deletion.expirations.by_partition) == (1, {B: 1})

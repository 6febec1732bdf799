"""Transaction markers through the replica manager, and the requests that wait for them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import structlog

from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.plain_batch import build_plain_marker
from odradek.protocol.records import read_batch_header, read_coordinator_epoch, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import T0, Fetched, ReplicaHarness, later
from tests.storage.small_logs import bytes_of, truncate

READ_COMMITTED = 1


class Listener:
    """Stands in for the group coordinator."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, int, bool]] = []

    def elected(self, partition: int, leader_epoch: int) -> None:
        pass

    def resigned(self, partition: int) -> None:
        pass

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.heard.append((partition, producer_id, producer_epoch, committed))


def transactional(
    harness: ReplicaHarness, producer_id: int = 7, sequence: int = 0, epoch: int = 0, count: int = 1
) -> bytes:
    return harness.batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )


def mark(
    harness: ReplicaHarness, key: TopicPartition = T0, *, epoch: int = 0, coordinator_epoch: int = 3, **options: Any
) -> list[Any]:
    """Appends a marker of producer 7, runs a turn of the loop and returns the result."""
    results: list[ErrorCode] = []
    committed = options.pop("committed", True)
    harness.manager.markers.append(key, 7, epoch, coordinator_epoch, committed, results.append, **options)
    harness.turn()
    return results


def test_a_marker_ends_the_transaction_and_is_stored_with_the_coordinators_epoch(harness: ReplicaHarness) -> None:
    log = harness.lead().log
    harness.produce(transactional(harness))
    assert log.last_stable_offset == 0
    assert mark(harness, coordinator_epoch=5) == [ErrorCode.NONE]
    assert (log.last_stable_offset, log.state.high_watermark, log.state.log_end_offset) == (2, 2, 2)
    stored = bytes_of(log.reader.read(1, 1000))
    header = read_batch_header(stored, 0)
    assert (header.is_control, header.is_transactional, header.producer_id, header.base_sequence) == (True, True, 7, -1)
    (record,) = read_records(stored, 0, header)
    assert read_coordinator_epoch(record.value) == 5
    assert record.timestamp == harness.clock.wall_ms()


def test_a_marker_waits_for_the_followers_like_a_produce(harness: ReplicaHarness) -> None:
    log = harness.lead(replicas=(0, 1)).log
    harness.produce(transactional(harness))
    results = mark(harness)
    assert results == []
    harness.fetch(FetchTarget(T0, 2, 1 << 20, log_start_offset=0), replica_id=1)
    assert results == [ErrorCode.NONE]
    assert log.last_stable_offset == 2


def test_a_marker_that_is_not_replicated_in_time_times_out(harness: ReplicaHarness) -> None:
    harness.lead(replicas=(0, 1))
    results = mark(harness, timeout_ms=500)
    harness.advance(500)
    assert results == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_marker_for_an_unknown_partition_fails_at_once(harness: ReplicaHarness) -> None:
    assert mark(harness) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    partition = harness.lead()
    partition.make_follower(later(partition, 4, (0, 4)))
    assert mark(harness) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_marker_of_a_zombie_coordinator_is_fenced_and_changes_nothing(harness: ReplicaHarness) -> None:
    log = harness.lead().log
    harness.produce(transactional(harness))
    mark(harness, coordinator_epoch=5)
    harness.produce(transactional(harness, sequence=1))
    assert mark(harness, coordinator_epoch=4) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert (log.last_stable_offset, log.state.log_end_offset) == (2, 3)
    assert mark(harness, coordinator_epoch=5) == [ErrorCode.NONE]
    assert log.last_stable_offset == 4


def test_a_marker_of_an_old_producer_epoch_is_refused(harness: ReplicaHarness) -> None:
    harness.lead()
    harness.produce(transactional(harness, epoch=3))
    assert mark(harness, epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_after_a_marker_with_a_newer_epoch_the_old_producer_is_a_zombie(harness: ReplicaHarness) -> None:
    """The coordinator aborts an expired transaction with the producer's epoch plus one."""
    log = harness.lead().log
    harness.produce(transactional(harness, epoch=3))
    assert mark(harness, epoch=4, committed=False) == [ErrorCode.NONE]
    assert log.last_stable_offset == 2
    assert harness.produce(transactional(harness, sequence=1, epoch=3)).result.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_without_a_transaction_is_stored_but_indexes_no_aborted_transaction(harness: ReplicaHarness) -> None:
    log = harness.lead().log
    assert mark(harness, committed=False) == [ErrorCode.NONE]
    assert mark(harness, committed=False) == [ErrorCode.NONE]
    assert (log.state.log_end_offset, log.last_stable_offset) == (2, 2)
    assert log.reader.aborted_transactions(log.reader.read(0, 1000)) == []


def test_a_marker_whose_append_raises_is_logged_and_may_be_sent_again(
    harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.lead().log
    harness.produce(transactional(harness))
    with monkeypatch.context() as faulty:
        faulty.setattr(type(log.segments.active.file), "write", broken)
        with structlog.testing.capture_logs() as lines:
            assert mark(harness) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    (line,) = lines
    assert (line["event"], line["log_level"], line["partition"]) == ("transaction marker failed", "error", str(T0))
    assert log.last_stable_offset == 0
    assert mark(harness) == [ErrorCode.NONE]
    assert log.last_stable_offset == 2


def broken(*_: Any) -> int:
    raise ValueError("a mistake in the file layer")


def test_an_aborted_transaction_is_indexed_alike_from_our_own_and_from_decoded_markers(harness: ReplicaHarness) -> None:
    """Our own marker is not decoded again, a marker that arrives as bytes is. Both give the same entry."""
    by_key = {}
    for number, plain in enumerate((True, False)):
        key = TopicPartition("t", number)
        log = harness.lead(key).log
        assert harness.produce(transactional(harness), key=key).result.error is ErrorCode.NONE
        marker = Marker(True, 3, harness.clock.wall_ms())
        built = build_plain_marker(marker, 7, 0)
        result = harness.manager.appends.append_as_coordinator(key, built if plain else built.to_bytes())
        assert result.error is ErrorCode.NONE
        harness.turn()
        entry = log.producers.state.producers[7]
        by_key[plain] = (
            bytes_of(log.reader.read(0, 1000)),
            log.reader.aborted_transactions(log.reader.read(0, 1000)),
            (entry.coordinator_epoch, entry.last_timestamp, entry.current_transaction_first_offset),
            log.last_stable_offset,
        )
    assert by_key[True] == by_key[False]
    assert len(by_key[True][1]) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_the_group_coordinator_is_notified_of_a_marker_before_the_transaction_coordinator(
    harness: ReplicaHarness, committed: bool
) -> None:
    key = TopicPartition("__consumer_offsets", 3)
    listener = Listener()
    harness.manager.leaderships.report(key.topic, listener)
    harness.lead(key)
    heard_by_then: list[int] = []
    harness.manager.markers.append(key, 7, 2, 0, committed, lambda _: heard_by_then.append(len(listener.heard)))
    harness.turn()
    assert heard_by_then == [1]
    assert listener.heard == [(3, 7, 2, committed)]


def test_the_group_coordinator_is_not_notified_of_a_failed_marker(harness: ReplicaHarness) -> None:
    key = TopicPartition("__consumer_offsets", 3)
    listener = Listener()
    harness.manager.leaderships.report(key.topic, listener)
    assert mark(harness, key) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert listener.heard == []


@pytest.mark.parametrize("session", [False, True])
def test_a_marker_wakes_a_read_committed_fetch_that_waits_for_the_transaction(
    harness: ReplicaHarness, session: bool
) -> None:
    harness.lead()
    harness.produce(transactional(harness))
    wants: dict[str, Any] = {"max_wait_ms": 10_000, "min_bytes": 1, "isolation_level": READ_COMMITTED}
    if session:
        first = harness.fetch(FetchTarget(T0, 0, 1 << 20), session=(0, 0), isolation_level=READ_COMMITTED)
        fetched = harness.fetch(session=first.session, **wants)
    else:
        fetched = harness.fetch(FetchTarget(T0, 0, 1 << 20), **wants)
    harness.produce(harness.batch())  # another producer's record does not end the wait
    assert not fetched.is_answered
    mark(harness)
    assert fetched.data.records
    assert fetched.data.last_stable_offset == fetched.data.high_watermark == 3


def test_a_read_committed_fetch_waits_until_a_marker_is_replicated(harness: ReplicaHarness) -> None:
    """The marker is in the log, but the last stable offset moves with the high watermark alone."""
    harness.lead(replicas=(0, 1))
    harness.produce(transactional(harness))
    harness.fetch(FetchTarget(T0, 1, 1 << 20, log_start_offset=0), replica_id=1)
    fetched = harness.fetch(
        FetchTarget(T0, 0, 1 << 20), max_wait_ms=10_000, min_bytes=1, isolation_level=READ_COMMITTED
    )
    mark(harness)
    assert not fetched.is_answered
    harness.fetch(FetchTarget(T0, 2, 1 << 20, log_start_offset=0), replica_id=1)
    assert fetched.data.last_stable_offset == 2


class TestBeyondTheLastStableOffset:
    """A read_committed fetch from an offset above the last stable offset."""

    wants: ClassVar[dict[str, Any]] = {"max_wait_ms": 10_000, "min_bytes": 1, "isolation_level": READ_COMMITTED}

    @pytest.fixture(params=["plain", "session", "rolled"])
    def fetched(self, harness: ReplicaHarness, request: pytest.FixtureRequest) -> Fetched:
        """Fetches from offset 2. A transaction is open from offset 1 on, and the log ends at 3."""
        partition = harness.lead()
        harness.produce()
        harness.produce(transactional(harness))
        if request.param == "rolled":
            partition.log.roll()
        harness.produce()
        assert (partition.log.last_stable_offset, partition.log.state.log_end_offset) == (1, 3)
        target = FetchTarget(T0, 2, 1 << 20)
        if request.param == "session":
            first = harness.fetch(target, session=(0, 0), isolation_level=READ_COMMITTED)
            return harness.fetch(session=first.session, **self.wants)
        return harness.fetch(target, **self.wants)

    def test_the_fetch_waits_for_the_transaction_to_end(self, harness: ReplicaHarness, fetched: Fetched) -> None:
        for _ in range(10):
            harness.produce()
        assert fetched.answers == 0
        mark(harness)
        assert fetched.answers == 1
        assert fetched.data.records
        assert fetched.data.last_stable_offset == 14

    def test_the_fetch_is_answered_once_at_its_timeout(self, harness: ReplicaHarness, fetched: Fetched) -> None:
        harness.produce()
        harness.advance(9_999)
        assert fetched.answers == 0
        harness.advance(1)
        assert fetched.answers == 1
        assert all(not data.records for data in fetched.partitions.values())
        assert harness.manager.fetch_purgatory.delayed == 0

    def test_truncating_the_log_below_the_offset_answers_the_fetch_at_once(
        self, harness: ReplicaHarness, fetched: Fetched
    ) -> None:
        truncate(harness.manager.partitions.find(T0).log, 0)
        harness.produce()
        assert fetched.answers == 1
        assert fetched.data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_min_bytes_counts_only_records_visible_to_a_read_committed_fetch(harness: ReplicaHarness) -> None:
    harness.lead()
    size = len(harness.batch())
    harness.produce(transactional(harness))
    fetched = harness.fetch(
        FetchTarget(T0, 0, 1 << 20), max_wait_ms=10_000, min_bytes=2 * size, isolation_level=READ_COMMITTED
    )
    for _ in range(5):
        harness.produce()
    assert fetched.answers == 0
    mark(harness)
    assert fetched.answers == 1


# Markers of version 2 bear the epoch after that of their transaction

STALE, WRITTEN = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE
LARGEST = 2**15 - 1


@pytest.mark.parametrize(
    ("version", "begun", "marker", "outcome"),
    [
        (2, 5, 6, WRITTEN),
        (2, 5, 7, WRITTEN),
        (2, 5, 5, STALE),
        (2, 5, 4, STALE),
        (2, LARGEST, LARGEST, WRITTEN),
        (1, 5, 5, WRITTEN),
        (1, 5, 6, WRITTEN),
        (1, 5, 4, STALE),
        (0, 5, 5, WRITTEN),
        (0, 5, 4, STALE),
    ],
)
def test_a_marker_ends_the_transactions_of_earlier_epochs_only(
    harness: ReplicaHarness, version: int, begun: int, marker: int, outcome: ErrorCode
) -> None:
    log = harness.lead().log
    harness.produce(transactional(harness, epoch=begun))
    assert mark(harness, epoch=marker, transaction_version=version) == [outcome]
    assert log.last_stable_offset == (2 if outcome is WRITTEN else 0)


@pytest.mark.parametrize(("marker", "outcome"), [(5, STALE), (6, WRITTEN), (7, WRITTEN)])
def test_a_marker_of_a_producer_without_a_transaction_may_be_repeated(
    harness: ReplicaHarness, marker: int, outcome: ErrorCode
) -> None:
    log = harness.lead().log
    assert mark(harness, epoch=6, transaction_version=2) == [WRITTEN], "the producer is unknown here"
    assert mark(harness, epoch=marker, transaction_version=2) == [outcome]
    assert log.state.log_end_offset == (1 if outcome is STALE else 2)


def test_a_late_marker_cannot_end_the_next_transaction(harness: ReplicaHarness) -> None:
    log = harness.lead().log
    harness.produce(transactional(harness, epoch=5))
    for _ in range(2):
        assert mark(harness, epoch=6, transaction_version=2) == [WRITTEN]
    harness.produce(transactional(harness, epoch=6))
    assert mark(harness, epoch=6, transaction_version=2, committed=False) == [STALE]
    assert log.last_stable_offset == 3
    assert mark(harness, epoch=7, transaction_version=2) == [WRITTEN]
    assert log.last_stable_offset == 5


@pytest.mark.parametrize("setting", [{"compression_type": "gzip"}, {"message_timestamp_type": "LogAppendTime"}])
def test_a_late_marker_is_refused_whatever_the_topics_settings(
    harness: ReplicaHarness, setting: dict[str, Any]
) -> None:
    log = harness.lead(**setting).log
    harness.produce(transactional(harness, epoch=5))
    assert mark(harness, epoch=5, transaction_version=2) == [STALE]
    assert mark(harness, epoch=6, transaction_version=2) == [WRITTEN]
    assert log.last_stable_offset == 2

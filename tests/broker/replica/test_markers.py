"""Transaction markers through the replica manager, and the requests that wait for them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import structlog

from odradek.broker.replica.fetch_session import FetchTarget
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.plain_batch import build_plain_marker
from odradek.protocol.records import read_batch_header, read_coordinator_epoch, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.rooms import T0, Fetched, Room
from tests.storage.small_logs import bytes_of

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


def transactional(room: Room, producer_id: int = 7, sequence: int = 0, epoch: int = 0, count: int = 1) -> bytes:
    return room.batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )


def mark(
    room: Room, key: TopicPartition = T0, *, epoch: int = 0, coordinator_epoch: int = 3, **options: Any
) -> list[Any]:
    """Appends a marker of producer 7, runs a turn of the loop and returns the result."""
    results: list[ErrorCode] = []
    committed = options.pop("committed", True)
    room.manager.append_end_transaction_marker(key, 7, epoch, coordinator_epoch, committed, results.append, **options)
    room.turn()
    return results


def test_a_marker_ends_the_transaction_and_is_stored_with_the_coordinators_epoch(room: Room) -> None:
    log = room.lead().log
    room.produce(transactional(room))
    assert log.last_stable_offset == 0
    assert mark(room, coordinator_epoch=5) == [ErrorCode.NONE]
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (2, 2, 2)
    stored = bytes_of(log.read(1, 1000))
    header = read_batch_header(stored, 0)
    assert (header.is_control, header.is_transactional, header.producer_id, header.base_sequence) == (True, True, 7, -1)
    (record,) = read_records(stored, 0, header)
    assert read_coordinator_epoch(record.value) == 5
    assert record.timestamp == room.clock.wall_ms()


def test_a_marker_waits_for_the_followers_like_a_produce(room: Room) -> None:
    log = room.lead(replicas=(0, 1)).log
    room.produce(transactional(room))
    results = mark(room)
    assert results == []
    room.fetch(FetchTarget(T0, 2, 1 << 20, log_start_offset=0), replica_id=1)
    assert results == [ErrorCode.NONE]
    assert log.last_stable_offset == 2


def test_a_marker_that_is_not_replicated_in_time_times_out(room: Room) -> None:
    room.lead(replicas=(0, 1))
    results = mark(room, timeout_ms=500)
    room.advance(500)
    assert results == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_marker_for_an_unknown_partition_fails_at_once(room: Room) -> None:
    assert mark(room) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    partition = room.lead()
    partition.make_follower(4, 1, (0, 4))
    assert mark(room) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_marker_of_a_zombie_coordinator_is_fenced_and_changes_nothing(room: Room) -> None:
    log = room.lead().log
    room.produce(transactional(room))
    mark(room, coordinator_epoch=5)
    room.produce(transactional(room, sequence=1))
    assert mark(room, coordinator_epoch=4) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert (log.last_stable_offset, log.log_end_offset) == (2, 3)
    assert mark(room, coordinator_epoch=5) == [ErrorCode.NONE]
    assert log.last_stable_offset == 4


def test_a_marker_of_an_old_producer_epoch_is_refused(room: Room) -> None:
    room.lead()
    room.produce(transactional(room, epoch=3))
    assert mark(room, epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_after_a_marker_with_a_newer_epoch_the_old_producer_is_a_zombie(room: Room) -> None:
    """The coordinator aborts an expired transaction with the producer's epoch plus one."""
    log = room.lead().log
    room.produce(transactional(room, epoch=3))
    assert mark(room, epoch=4, committed=False) == [ErrorCode.NONE]
    assert log.last_stable_offset == 2
    assert room.produce(transactional(room, sequence=1, epoch=3)).result.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_without_a_transaction_is_stored_but_indexes_no_aborted_transaction(room: Room) -> None:
    log = room.lead().log
    assert mark(room, committed=False) == [ErrorCode.NONE]
    assert mark(room, committed=False) == [ErrorCode.NONE]
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    assert log.aborted_transactions(log.read(0, 1000)) == []


def test_a_marker_whose_append_raises_is_logged_and_may_be_sent_again(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = room.lead().log
    room.produce(transactional(room))
    with monkeypatch.context() as faulty:
        faulty.setattr(type(log.active_segment.file), "write", broken)
        with structlog.testing.capture_logs() as lines:
            assert mark(room) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    (line,) = lines
    assert (line["event"], line["log_level"], line["partition"]) == ("transaction marker failed", "error", str(T0))
    assert log.last_stable_offset == 0
    assert mark(room) == [ErrorCode.NONE]
    assert log.last_stable_offset == 2


def broken(*_: Any) -> int:
    raise ValueError("a mistake in the file layer")


def test_an_aborted_transaction_is_indexed_alike_from_our_own_and_from_decoded_markers(room: Room) -> None:
    """Our own marker is not decoded again, a marker that arrives as bytes is. Both give the same entry."""
    by_key = {}
    for number, plain in enumerate((True, False)):
        key = TopicPartition("t", number)
        log = room.lead(key).log
        assert room.produce(transactional(room), key=key).result.error is ErrorCode.NONE
        marker = Marker(True, 3, room.clock.wall_ms())
        built = build_plain_marker(marker, 7, 0)
        result = room.manager.appends.append_as_coordinator(key, built if plain else built.to_bytes())
        assert result.error is ErrorCode.NONE
        room.turn()
        entry = log.producer_state.producers[7]
        by_key[plain] = (
            bytes_of(log.read(0, 1000)),
            log.aborted_transactions(log.read(0, 1000)),
            (entry.coordinator_epoch, entry.last_timestamp, entry.current_transaction_first_offset),
            log.last_stable_offset,
        )
    assert by_key[True] == by_key[False]
    assert len(by_key[True][1]) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_the_group_coordinator_is_notified_of_a_marker_before_the_transaction_coordinator(
    room: Room, committed: bool
) -> None:
    key = TopicPartition("__consumer_offsets", 3)
    listener = Listener()
    room.manager.leadership_listeners[key.topic] = listener
    room.lead(key)
    heard_by_then: list[int] = []
    room.manager.append_end_transaction_marker(
        key, 7, 2, 0, committed, lambda _: heard_by_then.append(len(listener.heard))
    )
    room.turn()
    assert heard_by_then == [1]
    assert listener.heard == [(3, 7, 2, committed)]


def test_the_group_coordinator_is_not_notified_of_a_failed_marker(room: Room) -> None:
    key = TopicPartition("__consumer_offsets", 3)
    listener = room.manager.leadership_listeners[key.topic] = Listener()
    assert mark(room, key) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert listener.heard == []


@pytest.mark.parametrize("session", [False, True])
def test_a_marker_wakes_a_read_committed_fetch_that_waits_for_the_transaction(room: Room, session: bool) -> None:
    room.lead()
    room.produce(transactional(room))
    wants: dict[str, Any] = {"max_wait_ms": 10_000, "min_bytes": 1, "isolation_level": READ_COMMITTED}
    if session:
        first = room.fetch(FetchTarget(T0, 0, 1 << 20), session=(0, 0), isolation_level=READ_COMMITTED)
        fetched = room.fetch(session=first.session, **wants)
    else:
        fetched = room.fetch(FetchTarget(T0, 0, 1 << 20), **wants)
    room.produce(room.batch())  # another producer's record does not end the wait
    assert not fetched.is_answered
    mark(room)
    assert fetched.data.records
    assert fetched.data.last_stable_offset == fetched.data.high_watermark == 3


def test_a_read_committed_fetch_waits_until_a_marker_is_replicated(room: Room) -> None:
    """The marker is in the log, but the last stable offset moves with the high watermark alone."""
    room.lead(replicas=(0, 1))
    room.produce(transactional(room))
    room.fetch(FetchTarget(T0, 1, 1 << 20, log_start_offset=0), replica_id=1)
    fetched = room.fetch(FetchTarget(T0, 0, 1 << 20), max_wait_ms=10_000, min_bytes=1, isolation_level=READ_COMMITTED)
    mark(room)
    assert not fetched.is_answered
    room.fetch(FetchTarget(T0, 2, 1 << 20, log_start_offset=0), replica_id=1)
    assert fetched.data.last_stable_offset == 2


class TestBeyondTheLastStableOffset:
    """A read_committed fetch from an offset above the last stable offset."""

    wants: ClassVar[dict[str, Any]] = {"max_wait_ms": 10_000, "min_bytes": 1, "isolation_level": READ_COMMITTED}

    @pytest.fixture(params=["plain", "session", "rolled"])
    def fetched(self, room: Room, request: pytest.FixtureRequest) -> Fetched:
        """Fetches from offset 2. A transaction is open from offset 1 on, and the log ends at 3."""
        partition = room.lead()
        room.produce()
        room.produce(transactional(room))
        if request.param == "rolled":
            partition.log.roll()
        room.produce()
        assert (partition.log.last_stable_offset, partition.log.log_end_offset) == (1, 3)
        target = FetchTarget(T0, 2, 1 << 20)
        if request.param == "session":
            first = room.fetch(target, session=(0, 0), isolation_level=READ_COMMITTED)
            return room.fetch(session=first.session, **self.wants)
        return room.fetch(target, **self.wants)

    def test_the_fetch_waits_for_the_transaction_to_end(self, room: Room, fetched: Fetched) -> None:
        for _ in range(10):
            room.produce()
        assert fetched.answers == 0
        mark(room)
        assert fetched.answers == 1
        assert fetched.data.records
        assert fetched.data.last_stable_offset == 14

    def test_the_fetch_is_answered_once_at_its_timeout(self, room: Room, fetched: Fetched) -> None:
        room.produce()
        room.advance(9_999)
        assert fetched.answers == 0
        room.advance(1)
        assert fetched.answers == 1
        assert all(not data.records for data in fetched.partitions.values())
        assert room.manager.fetch_purgatory.delayed == 0

    def test_truncating_the_log_below_the_offset_answers_the_fetch_at_once(self, room: Room, fetched: Fetched) -> None:
        room.manager.partition(T0).log.truncate_to(0)
        room.produce()
        assert fetched.answers == 1
        assert fetched.data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_min_bytes_counts_only_records_visible_to_a_read_committed_fetch(room: Room) -> None:
    room.lead()
    size = len(room.batch())
    room.produce(transactional(room))
    fetched = room.fetch(
        FetchTarget(T0, 0, 1 << 20), max_wait_ms=10_000, min_bytes=2 * size, isolation_level=READ_COMMITTED
    )
    for _ in range(5):
        room.produce()
    assert fetched.answers == 0
    mark(room)
    assert fetched.answers == 1

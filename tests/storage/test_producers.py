"""Idempotent producers, and the log's part of transactions."""

import pytest
import structlog

from odradek.protocol.control_records import ControlType
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import build_end_transaction_marker
from odradek.storage.log.log import Log
from odradek.storage.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from odradek.storage.producers.snapshot_format import CorruptSnapshot, read_snapshot, write_snapshot
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, headers_of, idempotent, open_small

MAX_INT = 2**31 - 1
MARKER_BYTES = 78


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


def refusal(log: Log, data: bytes) -> ErrorCode:
    end = log.state.log_end_offset
    with pytest.raises(ProtocolError) as error:
        append(log, data)
    assert log.state.log_end_offset == end
    return error.value.code


def mark(log: Log, control_type: ControlType, producer_id: int = 1, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    marker = build_end_transaction_marker(
        control_type,
        timestamp=NOW,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
    )
    return log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR).first_offset


def transactional(sequence: int, producer_id: int = 1, epoch: int = 0) -> bytes:
    return idempotent(sequence, producer_id=producer_id, epoch=epoch, is_transactional=True)


def test_a_duplicate_batch_returns_its_original_offset(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log)
    append(log, idempotent(0, b"a", b"b", timestamp=NOW - 5))
    append(log)
    again = log.append_as_leader(idempotent(0, b"a", b"b"), 0, api_version=9)
    assert again.duplicate
    assert (again.first_offset, again.last_offset, again.log_append_time_ms) == (1, 2, NOW - 5)
    assert log.state.log_end_offset == 4


def test_the_last_five_batches_are_duplicates_and_the_sixth_is_not(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for sequence in range(6):
        append(log, idempotent(sequence))
    for sequence in range(1, 6):
        info = log.append_as_leader(idempotent(sequence), 0, api_version=9)
        assert (info.duplicate, info.first_offset) == (True, sequence)
    assert refusal(log, idempotent(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_between_sequences_is_refused(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, idempotent(0, b"a", b"b"))
    assert refusal(log, idempotent(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, idempotent(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(2))


def test_sequences_wrap_to_zero_after_the_largest(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, idempotent(MAX_INT - 1, b"a", b"b", b"c"))  # MAX_INT - 1, MAX_INT, 0
    info = log.append_as_leader(idempotent(MAX_INT - 1, b"a", b"b", b"c"), 0, api_version=9)
    assert (info.duplicate, info.first_offset) == (True, 0)
    assert refusal(log, idempotent(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(1))
    other = open_small(files, "/data/orders-1")
    append(other, idempotent(MAX_INT))
    append(other, idempotent(0))


def test_an_unknown_producer_may_start_with_any_sequence(files: ForgetfulFiles) -> None:
    log = open_small(files)
    assert append(log, idempotent(77)) == 0
    assert refusal(log, idempotent(79)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(78)) == 1
    assert log.producers.state.producers[1].last_sequence == 78


def test_a_new_epoch_starts_at_sequence_zero(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, idempotent(0))
    assert refusal(log, idempotent(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0, epoch=1))
    assert refusal(log, idempotent(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_negative_epochs_are_fenced_even_for_new_producers(files: ForgetfulFiles) -> None:
    log = open_small(files)
    assert refusal(log, idempotent(0, epoch=-2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_are_independent(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for sequence in range(3):
        for producer_id in (1, 2, 3):
            append(log, idempotent(sequence, producer_id=producer_id))
    assert [entry.last_sequence for entry in log.producers.state.producers.values()] == [2, 2, 2]


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_batch_is_a_duplicate_after_a_restart(files: ForgetfulFiles, clean: bool) -> None:
    log = open_small(files, segment_bytes=500)
    for sequence in range(12):
        append(log, idempotent(sequence))
    if clean:
        log.close()
    again = open_small(files, segment_bytes=500, options={"clean": clean})
    info = again.append_as_leader(idempotent(11), 0, api_version=9)
    assert (info.duplicate, info.first_offset) == (True, 11)
    append(again, idempotent(12))


@pytest.mark.parametrize("segment_bytes", [1_000_000, 200], ids=["one segment", "many segments"])
def test_the_last_five_batches_are_duplicates_after_a_kill(files: ForgetfulFiles, segment_bytes: int) -> None:
    """A client repeats all five requests in flight, and none of them may be out of order."""
    log = open_small(files, segment_bytes=segment_bytes)
    for sequence in range(12):
        append(log, idempotent(sequence))
    again = open_small(files, segment_bytes=segment_bytes, options={"clean": False})
    for sequence in range(7, 12):
        info = again.append_as_leader(idempotent(sequence), 0, api_version=9)
        assert (info.duplicate, info.first_offset) == (True, sequence)
    assert refusal(again, idempotent(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(again, idempotent(12))


def test_an_idle_producer_expires_by_record_timestamps(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    log = open_small(files, clock=clock, options={"producer_id_expiration_ms": 1000})
    append(log, idempotent(0, timestamp=NOW - 500))
    assert log.producers.state.remove_expired(clock.wall_ms()) == 0
    clock.advance(500)
    assert log.producers.state.remove_expired(clock.wall_ms()) == 1
    append(log, idempotent(9))  # unknown by now: any sequence is accepted


def test_an_expired_producer_is_not_loaded_from_the_snapshot(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, idempotent(0))
    log.close()
    late = ManualClock(wall_ms=NOW + 86400000)
    assert open_small(files, clock=late).producers.state.producers == {}


def test_sequences_are_not_checked_in_the_brokers_own_appends(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for _ in range(2):
        log.append_as_leader(idempotent(0), 0, origin=AppendOrigin.COORDINATOR)
    assert log.state.log_end_offset == 2


# ---- transactions


def test_an_open_transaction_holds_back_the_last_stable_offset(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log)
    append(log, transactional(0))
    append(log)
    assert (log.state.high_watermark, log.last_stable_offset) == (3, 1)
    assert log.last_stable_offset_metadata == log.positions.of(1)
    mark(log, ControlType.COMMIT)
    assert log.last_stable_offset == 1  # the marker is not replicated yet
    log.update_high_watermark(log.state.log_end_offset)
    assert log.last_stable_offset == 4


def test_interleaved_transactions_become_stable_in_the_order_of_their_starts(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, transactional(0, producer_id=1))
    append(log, transactional(0, producer_id=2))
    mark(log, ControlType.COMMIT, producer_id=2)
    log.update_high_watermark(log.state.log_end_offset)
    assert log.last_stable_offset == 0
    mark(log, ControlType.ABORT, producer_id=1)
    log.update_high_watermark(log.state.log_end_offset)
    assert log.last_stable_offset == 4


def test_a_read_of_aborted_records_returns_their_transaction(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log)
    append(log, transactional(0, producer_id=1))
    append(log, transactional(0, producer_id=2))
    mark(log, ControlType.ABORT, producer_id=1)
    mark(log, ControlType.COMMIT, producer_id=2)
    log.update_high_watermark(log.state.log_end_offset)
    found = log.reader.aborted_transactions(log.reader.read(0, 1 << 20))
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found] == [(1, 1, 3)]
    assert found[0].last_stable_offset == 2  # producer 2's transaction was still open
    assert log.reader.aborted_transactions(log.reader.read(4, 1 << 20)) == []


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_survive_a_restart(files: ForgetfulFiles, clean: bool) -> None:
    log = open_small(files, segment_bytes=400)
    for number in range(6):
        append(log, transactional(2 * number))
        append(log, transactional(2 * number + 1))
        mark(log, ControlType.ABORT if number % 2 else ControlType.COMMIT)
    append(log, transactional(12))
    log.update_high_watermark(log.state.log_end_offset)
    expected = [segment.transaction_index.entries() for segment in log.segments]
    if clean:
        log.close()
    again = open_small(files, segment_bytes=400, options={"clean": clean})
    again.update_high_watermark(again.state.log_end_offset)
    assert [segment.transaction_index.entries() for segment in again.segments] == expected
    assert again.last_stable_offset == 18
    append(again, transactional(13))
    mark(again, ControlType.COMMIT)
    again.update_high_watermark(again.state.log_end_offset)
    assert again.last_stable_offset == again.state.log_end_offset


def test_a_producer_with_an_open_transaction_may_not_write_outside_it(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, transactional(0))
    assert refusal(log, idempotent(1)) == ErrorCode.INVALID_TXN_STATE


def test_a_marker_fences_older_epochs_and_coordinators(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, transactional(0))
    mark(log, ControlType.ABORT, epoch=1, coordinator_epoch=5)
    assert refusal(log, transactional(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(ProtocolError) as error:
        mark(log, ControlType.ABORT, epoch=1, coordinator_epoch=4)
    assert error.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    append(log, transactional(0, epoch=1))


def test_a_producer_with_an_open_transaction_does_not_expire(files: ForgetfulFiles) -> None:
    log = open_small(files, options={"producer_id_expiration_ms": 1})
    append(log, transactional(0))
    assert log.producers.state.remove_expired(NOW + 10_000) == 0
    mark(log, ControlType.COMMIT)
    assert log.producers.state.remove_expired(NOW + 10_000) == 1


# ---- snapshots


def test_a_snapshot_can_be_read_back() -> None:
    entries = [ProducerStateEntry(5, 2, 7, NOW, 40), ProducerStateEntry(6, 0, -1, NOW + 1)]
    entries[0].batches += [BatchMetadata(8, 30, 2, NOW - 1), BatchMetadata(9, 31, 0, NOW)]
    read = read_snapshot(write_snapshot(entries))
    assert [entry.batches for entry in read] == [[BatchMetadata(9, 31, 0, NOW)], []]
    assert [(entry.producer_id, entry.producer_epoch, entry.coordinator_epoch) for entry in read] == [
        (5, 2, 7),
        (6, 0, -1),
    ]
    assert [entry.current_transaction_first_offset for entry in read] == [40, -1]
    assert [entry.last_timestamp for entry in read] == [NOW, NOW + 1]


def test_every_changed_or_lost_byte_of_a_snapshot_is_detected() -> None:
    entry = ProducerStateEntry(5, 2, 7, NOW, 40)
    entry.batches.append(BatchMetadata(9, 31, 0, NOW))
    data = write_snapshot([entry])
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x40
        with pytest.raises(CorruptSnapshot):
            read_snapshot(bytes(changed))
        with pytest.raises(CorruptSnapshot):
            read_snapshot(data[:position])


def test_a_corrupt_snapshot_is_removed_and_the_producers_are_rebuilt_from_the_log(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=400)
    for sequence in range(10):
        append(log, idempotent(sequence))
    log.close()
    newest = f"/data/orders-0/{10:020d}.snapshot"
    files.content(newest)[20] ^= 1
    again = open_small(files, segment_bytes=400)
    assert again.producers.state.producers[1].last_sequence == 9
    assert read_snapshot(files.read_file(newest))[0].producer_id == 1
    assert len(headers_of(again)) == 10


def test_batches_without_a_producer_add_no_producer_state(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, batch())
    assert log.producers.state.producers == {}


# ---- the transaction index and power cuts


def aborted_of(log: Log) -> list[tuple[int, int]]:
    log.update_high_watermark(log.state.log_end_offset)
    return [
        (entry.first_offset, entry.last_offset)
        for entry in log.reader.aborted_transactions(log.reader.read(0, 1 << 20))
    ]


def test_an_aborted_transaction_is_known_after_a_clean_shutdown_and_a_power_failure(files: ForgetfulFiles) -> None:
    log = open_small(files)
    files.make_durable()
    append(log, transactional(0))
    mark(log, ControlType.ABORT)
    log.close()
    assert aborted_of(open_small(files.crash(), options={"clean": True})) == [(0, 1)]


def test_an_aborted_transaction_of_a_recovered_and_flushed_segment_survives_a_power_failure(
    files: ForgetfulFiles,
) -> None:
    log = open_small(files)
    files.make_durable()
    append(log, transactional(0))
    mark(log, ControlType.ABORT)
    log.flush()
    after = files.crash()
    recovered = open_small(after, options={"clean": False})
    assert aborted_of(recovered) == [(0, 1)]
    recovered.roll()
    append(recovered)
    recovered.flush()
    point = recovered.flusher.safe_recovery_point
    assert point >= 2, "the first segment will not be read again"
    assert aborted_of(open_small(after.crash(), options={"clean": False, "recovery_point": point})) == [(0, 1)]


def test_a_log_with_a_damaged_segment_and_transaction_index_can_be_opened(
    files: ForgetfulFiles,
) -> None:
    log = open_small(files, segment_bytes=150)
    append(log)
    append(log)
    append(log, transactional(0))
    mark(log, ControlType.ABORT)
    spoilt = log.segments.active
    assert spoilt.base_offset > 0
    log.close()
    files.content(spoilt.path(".txnindex"))[:] = bytes(34)
    content = files.content(spoilt.path(".log"))
    assert len(content) > MARKER_BYTES
    content[-MARKER_BYTES:] = bytes(MARKER_BYTES)
    again = open_small(files, segment_bytes=150, options={"clean": False})
    assert again.state.log_end_offset == 3
    assert aborted_of(again) == []


@pytest.mark.parametrize("spoilt", [b"\x00\x07" + bytes(32), bytes(34)])
def test_a_transaction_index_damaged_while_serving_is_an_error_until_the_log_is_opened_again(
    files: ForgetfulFiles, spoilt: bytes
) -> None:
    """A version from the future, or a transaction that ended before its segment began."""
    log = open_small(files, segment_bytes=150)
    append(log)
    append(log)
    append(log, transactional(0))
    mark(log, ControlType.ABORT)
    segment = log.segments.active
    assert segment.base_offset > 0
    start = log.state.log_end_offset - 2
    log.update_high_watermark(log.state.log_end_offset)
    fetched = log.reader.read(start, 1 << 20)
    assert len(log.reader.aborted_transactions(fetched)) == 1
    segment.transaction_index.unload()
    files.content(segment.path(".txnindex"))[:] = spoilt
    with structlog.testing.capture_logs() as lines, pytest.raises(ProtocolError) as refused:
        log.reader.aborted_transactions(fetched)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [(line["event"], line["log_level"]) for line in lines] == [("log not readable", "error")]
    log.close()
    again = open_small(files, segment_bytes=150)
    again.update_high_watermark(again.state.log_end_offset)
    assert len(again.reader.aborted_transactions(again.reader.read(start, 1 << 20))) == 1

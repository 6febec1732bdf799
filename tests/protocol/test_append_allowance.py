"""How much the batches of one request may inflate to, and how much of a batch fits one turn."""

from __future__ import annotations

import gzip

import pytest

from odradek.protocol import append_allowance
from odradek.protocol.append_allowance import APPEND_BYTES, TURN_BYTES, TURN_RECORDS, AppendAllowance, TooMuchForOneTurn
from odradek.protocol.batch_header import BATCH_OVERHEAD
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BatchValidation, Compression, Record, ValidatedBatch, build_batch
from tests.protocol.validated_batches import check
from tests.scenarios.hostile_batches import batch_of

NOW = 1_700_000_000_000
LIMIT = 8 << 20


def batch(size: int, codec: Compression = Compression.NONE, count: int = 1) -> bytes:
    """Records whose values have `size` bytes in total."""
    records = [Record(offset, NOW, b"k", bytes(size // count)) for offset in range(count)]
    return build_batch(records, compression=codec)


def validation(records: bytes, **settings: object) -> BatchValidation:
    arguments = {"now_ms": NOW, "partition_leader_epoch": 0, "max_batch_bytes": LIMIT, **settings}
    arguments = {"max_decompressed_bytes": LIMIT, **arguments}
    return BatchValidation(records, **arguments)  # type: ignore[arg-type]


def piece_by_piece(records: bytes, allowance: AppendAllowance) -> ValidatedBatch:
    checked = validation(records)
    checked.check_header()
    checked.read(allowance)
    check(checked, TURN_RECORDS)
    return checked.settle()


def refusal_of(records: bytes, allowance: AppendAllowance) -> ProtocolError:
    with pytest.raises(ProtocolError) as refusal:
        piece_by_piece(records, allowance)
    return refusal.value


def test_small_batches_share_a_turn() -> None:
    allowance = AppendAllowance(LIMIT)
    assert allowance.is_untouched
    plain = batch(TURN_BYTES // 2)
    validation(plain).at_once(allowance)
    assert allowance.turn_bytes == TURN_BYTES - len(plain) - APPEND_BYTES
    with pytest.raises(TooMuchForOneTurn):
        validation(plain).at_once(allowance)
    allowance.begin_turn()
    assert validation(plain).at_once(allowance).header.record_count == 1
    assert allowance.inflated_bytes == LIMIT


def test_the_number_of_the_smallest_batches_in_a_turn_is_bounded() -> None:
    allowance, small = AppendAllowance(LIMIT), batch(1)
    for _ in range(TURN_BYTES // (APPEND_BYTES + len(small))):
        validation(small).at_once(allowance)
    with pytest.raises(TooMuchForOneTurn):
        validation(small).at_once(allowance)


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_batch_that_inflates_beyond_the_turn_is_deferred_and_counted_once(codec: Compression) -> None:
    allowance = AppendAllowance(LIMIT)
    large = batch(2 * TURN_BYTES, codec)
    with pytest.raises(TooMuchForOneTurn):
        validation(large).at_once(allowance)
    assert allowance.is_untouched
    assert allowance.inflated_bytes == LIMIT
    assert piece_by_piece(large, allowance).header.record_count == 1
    assert LIMIT - allowance.inflated_bytes == pytest.approx(2 * TURN_BYTES, abs=100)


def test_a_batch_with_very_many_records_is_deferred() -> None:
    allowance = AppendAllowance(LIMIT)
    with pytest.raises(TooMuchForOneTurn):
        validation(batch(0, count=TURN_RECORDS + 1)).at_once(allowance)
    assert validation(batch(0, count=TURN_RECORDS)).at_once(allowance).header.record_count == TURN_RECORDS


def test_an_invalid_stream_uses_up_the_turn() -> None:
    allowance = AppendAllowance(LIMIT)
    with pytest.raises(ProtocolError):
        allowance.inflate(memoryview(b"no stream"), Compression.GZIP, LIMIT, allowance.turn_bytes)
    assert allowance.is_used_up


def test_nothing_is_inflated_once_the_allowance_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inflating the first piece of each of thousands of batches took most of a second."""
    monkeypatch.delattr(append_allowance, "inflate")
    with pytest.raises(ProtocolError, match="inflate to more than 0 bytes in total"):
        AppendAllowance(0).inflate(memoryview(b""), Compression.ZSTD, LIMIT, LIMIT)


def test_a_recompressed_batch_takes_more_of_the_turn() -> None:
    plain = batch(TURN_BYTES // 4)
    with pytest.raises(TooMuchForOneTurn):
        validation(plain, target_compression="gzip").at_once(AppendAllowance(LIMIT))
    assert validation(plain).at_once(AppendAllowance(LIMIT)).header.record_count == 1


def test_the_inflated_size_of_all_batches_of_a_request_is_bounded() -> None:
    allowance = AppendAllowance(LIMIT)
    bomb = batch(LIMIT * 3 // 4, Compression.ZSTD)
    piece_by_piece(bomb, allowance)
    refusal = refusal_of(bomb, allowance)
    assert refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal.error_message == f"the batches of the request inflate to more than {LIMIT} bytes in total"
    assert allowance.inflated_bytes == 0
    assert refusal_of(batch(100, Compression.ZSTD), allowance).code is ErrorCode.MESSAGE_TOO_LARGE
    assert piece_by_piece(batch(100), allowance).header.record_count == 1  # nothing is inflated for it


def test_a_batch_beyond_its_limit_is_charged_for_its_inflated_bytes() -> None:
    allowance = AppendAllowance(3 * LIMIT)
    refusal = refusal_of(batch(2 * LIMIT, Compression.ZSTD), allowance)
    assert refusal.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "request" not in str(refusal.error_message)
    assert allowance.inflated_bytes == 2 * LIMIT


def test_a_stream_that_fails_at_its_end_is_charged_too() -> None:
    allowance = AppendAllowance(3 * LIMIT)
    cut = batch(LIMIT // 2, Compression.GZIP)[61:-4]
    with pytest.raises(ProtocolError) as refusal:
        allowance.inflate(memoryview(cut), Compression.GZIP, LIMIT, 1 << 62)
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert allowance.inflated_bytes == 2 * LIMIT


@pytest.mark.parametrize("allowance", [AppendAllowance(LIMIT), None], ids=["of a request", "none"])
def test_a_stream_that_not_all_clients_read_is_refused(allowance: AppendAllowance | None) -> None:
    """However the batch is checked. Two gzip members are one stream in a log."""
    body = build_batch([Record(0, NOW, b"k", b"v")])[BATCH_OVERHEAD:]
    with pytest.raises(ProtocolError, match="a second member") as refusal:
        validation(batch_of(gzip.compress(body[:3]) + gzip.compress(body[3:]), 1, Compression.GZIP)).at_once(allowance)
    assert refusal.value.code is ErrorCode.INVALID_RECORD

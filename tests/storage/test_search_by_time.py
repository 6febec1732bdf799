"""Searches by time that take several steps, while the log may change between the steps."""

import pytest

from odradek.broker.background.stepwise import Steps
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import Compression
from odradek.storage.log.log import Log
from odradek.storage.log_offsets import TimestampOffset
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, open_small

RECORDS = 5000


def large_batch(codec: int, last: int = NOW) -> bytes:
    """Returns a batch of many pieces; only its last record has the timestamp `last`."""
    times = [NOW - 1] * (RECORDS - 1) + [last]
    return batch(*[b"%060d" % number for number in range(RECORDS)], timestamps=times, compression=codec)


def steps_of(log: Log, search: Steps[TimestampOffset | None]) -> tuple[int, TimestampOffset | None]:
    """Returns the number of pauses and the result of the search. At each pause its segments are released."""
    pauses = 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1
        for segment in list(log.segments)[:-1]:
            segment.release()


@pytest.mark.parametrize("codec", Compression)
def test_a_search_in_a_large_batch_pauses_and_continues(codec: Compression) -> None:
    log = open_small(ForgetfulFiles())
    append(log)
    append(log, large_batch(codec))
    log.roll()
    append(log)
    pauses, found = steps_of(log, log.search.offset_for_timestamp(NOW))
    assert (pauses, found) == (0, (NOW, 0, 0))
    log.start.delete_records_before(1)
    pauses, found = steps_of(log, log.search.offset_for_timestamp(NOW))
    assert found == (NOW, RECORDS, 0)
    assert pauses > 3


def test_a_search_past_many_batches_pauses_and_continues() -> None:
    log = open_small(ForgetfulFiles(), index_interval_bytes=1 << 30)
    for _ in range(1000):
        append(log, batch(timestamp=NOW - 1))
    append(log)
    log.roll()
    pauses, found = steps_of(log, log.search.offset_for_timestamp(NOW))
    assert (pauses, found) == (3, (NOW, 1000, 0))


def test_the_largest_timestamp_is_found_in_steps() -> None:
    log = open_small(ForgetfulFiles())
    append(log, large_batch(Compression.GZIP, last=NOW + 5))
    log.roll()
    append(log)
    pauses, found = steps_of(log, log.search.offset_for_timestamp(-3))
    assert found == (NOW + 5, RECORDS - 1, 0)
    assert pauses > 3


def test_the_largest_timestamp_is_found_even_if_its_record_was_deleted() -> None:
    log = open_small(ForgetfulFiles())
    append(log, batch(b"a", b"b", b"c", timestamps=[NOW, NOW + 2, NOW + 1]))
    log.start.delete_records_before(2)
    assert steps_of(log, log.search.offset_for_timestamp(-3)) == (0, (NOW + 2, 1, 0))
    assert steps_of(log, log.search.offset_for_timestamp(NOW)) == (0, (NOW + 1, 2, 0))


def test_a_search_fails_if_the_log_is_closed_meanwhile() -> None:
    files = ForgetfulFiles()
    log = open_small(files)
    append(log, large_batch(Compression.NONE))
    search = log.search.offset_for_timestamp(NOW)
    next(search)
    log.close()
    files.remove(log.segments[0].path(".log"))
    with pytest.raises(ProtocolError) as error:
        steps_of(log, search)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR

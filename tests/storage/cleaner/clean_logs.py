"""Cleaning a log in a test: runs all steps at once, including the swaps, like the broker's cleaner."""

from collections.abc import Callable, Iterator
from functools import lru_cache

from odradek.protocol.control_records import ControlType
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import (
    BatchHeader,
    Record,
    build_batch,
    build_end_transaction_marker,
    iter_batches,
    read_records,
)
from odradek.storage.cleaner.candidates import clean_job, log_to_clean
from odradek.storage.cleaner.cleaner import clean_steps
from odradek.storage.cleaner.job import CleanDone, CleanedGroup, CleanJob
from odradek.storage.cleaner.swap import replace_segments
from odradek.storage.log.log import Log
from tests.storage.small_logs import NOW

PLENTY = 64 << 20


def job_of(log: Log, now_ms: int = NOW, map_bytes: int = PLENTY, chunk_bytes: int = 4096) -> CleanJob:
    """Returns the job as the other process receives it."""
    to_clean = log_to_clean(log, now_ms)
    return CleanJob.from_json(clean_job(to_clean, now_ms, map_bytes, chunk_bytes, log).to_json())


def clean(
    log: Log, now_ms: int = NOW, map_bytes: int = PLENTY, chunk_bytes: int = 4096, each: Callable[[], object] = list
) -> CleanDone:
    """Runs one clean, and calls `each` after every step."""
    job = job_of(log, now_ms, map_bytes, chunk_bytes)
    segments = {segment.base_offset: segment for segment in log.segments}
    steps = clean_steps(log.files, job)
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            done: CleanDone = end.value
            log.state.cleaned_to(done.end_offset)
            return done
        each()
        if isinstance(step, CleanedGroup) and step.changed:
            removed = replace_segments(log, step.base_offset, [segments[base] for base in step.replaced])
            each()
            log.files.sync_directory(log.folder.path)
            for path in removed:
                log.files.remove(path)


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], time: int = NOW, **options: object) -> int:
    """Appends one batch of (key, value); returns the first offset."""
    records = [Record(offset=i, timestamp=time, key=key, value=value) for i, (key, value) in enumerate(pairs)]
    info = log.append_as_leader(build_batch(records, **options), 0)  # type: ignore[arg-type]
    log.update_high_watermark(log.state.log_end_offset)
    return info.first_offset


def end_transaction(log: Log, producer_id: int, committed: bool, epoch: int = 0, time: int = NOW) -> int:
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    marker = build_end_transaction_marker(
        kind, timestamp=time, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1
    )
    info = log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.state.log_end_offset)
    return info.first_offset


def seal(log: Log) -> None:
    """Makes the active segment cleanable: rolls and flushes it."""
    log.roll()
    log.flush()
    log.segments.unsynced.clear()


def batches(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Returns all batches of all segments, including those before the log's start."""
    for segment in log.segments:
        yield from _batches_of(bytes(log.segments.use(segment).file.read(0, segment.size)))


@lru_cache(maxsize=64)
def _batches_of(data: bytes) -> list[tuple[BatchHeader, list[Record]]]:
    """Tests look at every segment after each step, and few of them have changed."""
    return [(header, read_records(data, position, header)) for position, header in iter_batches(data)]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns (offset, key, value) of all records except markers."""
    return [
        (record.offset, record.key, record.value)
        for header, records in batches(log)
        if not header.is_control
        for record in records
    ]

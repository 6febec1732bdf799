"""Small logs for tests: batches, settings, and a log on a disk in memory or on a real one."""

from collections.abc import Mapping
from typing import Any

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.records import Record, build_batch, iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.file_slice import FileSlice
from odradek.storage.files import Files
from odradek.storage.log.log import Log
from odradek.storage.log.read import FetchData
from odradek.storage.log.recovery import open_log
from odradek.storage.log.truncation import Target, Truncate
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock

PARTITION = TopicPartition("orders", 0)
NOW = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = NOW, timestamps: list[int] | None = None, **options: Any) -> bytes:
    """Returns a client's batch with these values (a single `v` if none) and keys `k`."""
    values = values or (b"v",)
    times = timestamps if timestamps is not None else [timestamp] * len(values)
    records = [
        Record(offset=number, timestamp=times[number], key=b"k", value=value) for number, value in enumerate(values)
    ]
    return build_batch(records, **options)


def idempotent(sequence: int, *values: bytes, producer_id: int = 1, epoch: int = 0, **options: Any) -> bytes:
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def open_small(
    files: Files,
    directory: str = "/data/orders-0",
    clock: ManualClock | None = None,
    options: Any = None,
    **settings: Any,
) -> Log:
    """Opens a log with these settings (underscores for dots); `options` go to open_log."""
    config = LogConfig({name.replace("_", "."): value for name, value in settings.items()})
    return open_log(files, directory, PARTITION, config, clock or ManualClock(wall_ms=NOW), **(options or {}))


def append(log: Log, data: bytes | None = None, epoch: int = 0) -> int:
    """Appends a batch and moves the high watermark like a single replica; returns the batch's first offset."""
    info = log.append_as_leader(data if data is not None else batch(), epoch, api_version=9)
    log.update_high_watermark(log.state.log_end_offset)
    return info.first_offset


def truncate(log: Log, target: int | Target) -> bool:
    """Runs a truncation of one log, without checkpoints; returns whether there was anything to remove."""
    truncation = log.truncation(Truncate(target) if isinstance(target, int) else target)
    if not truncation.begin():
        return False
    for job in truncation.steps():
        if job is not None:
            job()
    return True


def truncate_in(manager: LogManager, targets: Mapping[TopicPartition, Target]) -> dict[TopicPartition, Any]:
    """Runs a truncation of several logs; returns the error of each, or None."""
    steps = manager.truncation_steps(targets)
    while True:
        try:
            job = next(steps)
        except StopIteration as end:
            return dict(end.value)
        if job is not None:
            job()


def run_flush_jobs(manager: LogManager) -> None:
    for log, job in filter(None, manager.take_flush_jobs()):
        job.run()
        log.flusher.finish(job)


def bytes_of(data: FetchData) -> bytes:
    """Returns the records of a read that did not ask for a slice of the file."""
    assert not isinstance(data.records, FileSlice)
    return bytes(data.records)


def headers_of(log: Log) -> list[BatchHeader]:
    """Returns the headers of all batches, read like a consumer."""
    found = []
    offset = log.state.log_start_offset
    while offset < log.state.log_end_offset:
        read = [header for _, header in iter_batches(bytes_of(log.reader.read(offset, 1 << 20)))]
        assert read, offset
        found += read
        offset = read[-1].next_offset
    return found


def all_bytes(log: Log) -> bytes:
    """Returns all records of the log, read like a consumer."""
    parts = []
    offset = log.state.log_start_offset
    while offset < log.state.log_end_offset:
        data = bytes_of(log.reader.read(offset, 1 << 20))
        assert data, offset
        parts.append(data)
        for _, header in iter_batches(data):
            offset = header.next_offset
    return b"".join(parts)

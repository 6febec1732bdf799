"""Leader epochs are noted without waiting for the disk, and no crash loses those of batches that are there."""

import random

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import read_epochs
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log import Log
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import (
    NOW,
    PARTITION,
    append,
    batch,
    headers_of,
    idempotent,
    open_small,
    run_flush_jobs,
    truncate,
)

PATH = "/data/orders-0/leader-epoch-checkpoint"
SIZE = len(batch(b"x" * 50))


@pytest.fixture
def files() -> ForgetfulFiles:
    files = ForgetfulFiles()
    files.make_directories("/data/orders-0")
    files.make_durable()
    return files


def started(files: ForgetfulFiles) -> LogManager:
    manager = LogManager(["/data"], files, ManualClock(wall_ms=NOW), random_source=random.Random(1))
    manager.open()
    manager.claim(1, "cluster")
    manager.load()
    return manager


def recovered(files: ForgetfulFiles, recovery_point: int = 0, source: random.Random | None = None) -> Log:
    options = {"clean": False, "recovery_point": recovery_point}
    return open_small(files.crash(source), options=options, segment_bytes=3 * SIZE)


def test_a_broker_leads_many_partitions_without_a_sync_and_writes_the_epochs_later(files: ForgetfulFiles) -> None:
    manager = started(files)
    logs = [manager.get_or_create(TopicPartition("many", number), None, LogConfig()) for number in range(100)]
    files.synced_paths.clear()
    for log in logs:
        log.assign_epoch_start_offset(4)
    assert files.synced_paths == []
    assert all(tuple(log.end_offset_for_epoch(4)) == (4, 0) for log in logs)
    run_flush_jobs(manager)
    assert len(files.synced_paths) == 100
    assert all(read_epochs(files, log.leader_epochs.path) == [(4, 0)] for log in logs)
    assert list(filter(None, manager.take_flush_jobs())) == []


def test_a_clean_stop_writes_the_epochs(files: ForgetfulFiles) -> None:
    manager = started(files)
    log = manager.get_or_create(PARTITION, None, LogConfig())
    append(log, epoch=3)
    log.assign_epoch_start_offset(5)
    assert manager.shutdown() == {}
    assert read_epochs(files.crash(), PATH) == [(3, 0), (5, 1)]


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_a_crash_loses_no_epoch_of_a_batch(files: ForgetfulFiles, seed: int | None) -> None:
    log = open_small(files, segment_bytes=3 * SIZE)
    for number in range(12):
        append(log, batch(b"x" * 50), epoch=number // 5)
        if number == 6:
            log.flush()
    found = recovered(files, 7, None if seed is None else random.Random(seed))
    assert found.state.log_end_offset >= 7
    expected = [entry for entry in [(0, 0), (1, 5), (2, 10)] if entry[1] < found.state.log_end_offset]
    assert found.leader_epochs.entries == expected


def test_entries_of_truncated_batches_are_dropped_by_a_recovery(files: ForgetfulFiles) -> None:
    """Even if the batches that follow them are of older epochs."""
    log = open_small(files, segment_bytes=100 * SIZE)
    for number in range(10):
        append(log, batch(b"x" * 50), epoch=7 if number >= 6 else 3)
    log.flush()
    truncate(log, 5)
    files.replace_file(PATH, b"0\n2\n3 0\n7 6\n")  # a crash before the file was written again
    for _ in range(6):
        append(log, batch(b"y" * 50), epoch=4)
    files.make_durable()
    found = recovered(files, 5)
    assert {header.partition_leader_epoch for header in headers_of(found)} == {3, 4}
    assert found.leader_epochs.entries == [(3, 0), (4, 5)]


def test_the_recovery_point_does_not_pass_a_batch_whose_epoch_is_not_on_the_disk(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=3 * SIZE)
    append(log, batch(b"x" * 50), epoch=1)
    log.flush()
    append(log, batch(b"x" * 50), epoch=2)
    job = log.begin_flush()
    assert job is not None
    files.room = 0
    job.run()
    with pytest.raises(ProtocolError) as error:
        log.flusher.finish(job)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.state.recovery_point, log.folder.failure) == (1, None)
    files.room = None
    log.flush()
    assert log.state.recovery_point == 2
    assert read_epochs(files, PATH) == [(1, 0), (2, 1)]


def test_of_two_writes_in_the_wrong_order_the_later_one_wins(files: ForgetfulFiles) -> None:
    epochs = LeaderEpochs(files, PATH)
    epochs.assign(1, 0)
    first = epochs.take_write()
    epochs.assign(2, 5)
    second = epochs.take_write()
    assert first is not None
    assert second is not None
    second()
    first()
    assert epochs.is_written
    assert epochs.take_write() is None
    assert read_epochs(files, PATH) == [(1, 0), (2, 5)]


def test_a_write_of_older_entries_leaves_newer_ones_to_be_written(files: ForgetfulFiles) -> None:
    epochs = LeaderEpochs(files, PATH)
    epochs.assign(1, 0)
    write = epochs.take_write()
    assert write is not None
    epochs.assign(2, 5)
    write()
    assert not epochs.is_written


def test_deleting_records_does_not_wait_for_the_epochs(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for number in range(6):
        append(log, idempotent(number), epoch=number)
    log.flush()
    files.synced_paths.clear()
    log.start.delete_records_before(4)
    assert files.synced_paths == []
    assert log.leader_epochs.entries == [(4, 4), (5, 5)]
    assert not log.leader_epochs.is_written


def test_records_that_a_crash_brings_back_have_their_epochs(files: ForgetfulFiles) -> None:
    """The file of the epochs is newer than the checkpoint of the log's start, below which the records were deleted."""
    log = open_small(files)
    for epoch in (3, 3, 4, 5, 5):
        append(log, batch(b"x" * 50), epoch=epoch)
    log.start.delete_records_before(4)
    log.assign_epoch_start_offset(6)
    log.flush()
    assert read_epochs(files, PATH) == [(5, 4), (6, 5)]
    again = recovered(files, recovery_point=5)
    assert again.state.log_start_offset == 0
    assert again.leader_epochs.entries == [(3, 0), (4, 2), (5, 3)]
    assert tuple(again.end_offset_for_epoch(3)) == (3, 2)


def test_records_that_a_crash_brings_back_before_an_empty_segment_have_their_epochs(files: ForgetfulFiles) -> None:
    """Retention has deleted all records, after a roll. The file of the epochs is on the disk, the deletions are not."""
    log = open_small(files)
    for epoch in (3, 4):
        append(log, batch(b"x" * 50), epoch=epoch)
    log.writer.roll(log.config)
    log.start.delete_records_before(2)
    log.flush()
    assert read_epochs(files, PATH) == [(4, 2)]
    again = recovered(files, recovery_point=2)
    assert (again.state.log_start_offset, again.segments.base_offsets) == (0, [0, 2])
    assert again.leader_epochs.entries == [(3, 0), (4, 1)]


def test_an_epoch_without_batches_stays_when_others_are_read_again(files: ForgetfulFiles) -> None:
    """Compaction has removed all batches of epoch 4, and a crash brings back the records before it."""
    log = open_small(files, segment_bytes=SIZE)
    for epoch in (3, 4, 5, 5):
        append(log, batch(b"x" * 50), epoch=epoch)
    log.start.delete_records_before(1)
    log.flush()
    assert read_epochs(files, PATH) == [(4, 1), (5, 2)]
    for name in [name for name in files.names if name.startswith("/data/orders-0/00000000000000000001.")]:
        files.remove(name)
    files.make_durable()
    again = recovered(files, recovery_point=3)
    assert again.leader_epochs.entries == [(3, 0), (4, 1), (5, 2)]

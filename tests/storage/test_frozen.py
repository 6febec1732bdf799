"""A log that was frozen at an instant and written elsewhere is the log of that instant."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import ControlType, build_end_transaction_marker
from odradek.storage.files import Files
from odradek.storage.linked_files import LinkingFiles
from odradek.storage.log.frozen import MOST_COPIED_AGAIN, FrozenLog, LogHasChanged, prepare
from odradek.storage.log.log import Log
from tests.memory_files import ForgetfulFiles
from tests.soak import seeds
from tests.storage.small_logs import NOW, all_bytes, append, batch, idempotent, open_small, truncate

SMALL_SEGMENTS: dict[str, Any] = {"segment_bytes": 3000, "index_interval_bytes": 200}


def write_out(frozen: FrozenLog, files: Files, folder: str) -> None:
    for work in frozen.steps(files, folder):
        if work is not None:
            work()


def reopened(files: Files, folder: str, frozen: FrozenLog, **settings: Any) -> Log:
    options = {"log_start_offset": frozen.log_start_offset, "high_watermark": frozen.high_watermark}
    return open_small(files, folder, options=options, **settings)


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def what_it_has(log: Log) -> tuple[object, ...]:
    times = [finished(log.search.offset_for_timestamp(NOW + step * 10)) for step in range(0, 40, 7)]
    producers = {
        producer_id: (entry.producer_epoch, entry.last_timestamp, entry.current_transaction_first_offset)
        for producer_id, entry in log.producers.state.producers.items()
    }
    return (
        log.state.log_start_offset,
        log.state.log_end_offset,
        log.state.high_watermark,
        log.last_stable_offset,
        all_bytes(log),
        log.leader_epochs.entries,
        producers,
        times,
        [segment.max_timestamp for segment in log.segments if segment.size],
        [entry for segment in log.segments for entry in segment.transaction_index.entries()],
    )


@pytest.mark.parametrize("seed", seeds(4, of=12))
def test_it_opens_as_the_log_was_whatever_was_appended_meanwhile(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    files = LinkingFiles()
    log = open_small(files, str(tmp_path / "orders-0"), **SMALL_SEGMENTS)
    grow(log, source, source.randrange(80))
    prepare(log)
    frozen, expected = FrozenLog(log), what_it_has(log)
    grow(log, source, source.randrange(80))
    folder = tmp_path / "copy" / "orders-0"
    write_out(frozen, files, str(folder))
    before = content(folder)
    grow(log, source, 20)
    copy = reopened(files, str(folder), frozen, **SMALL_SEGMENTS)
    assert what_it_has(copy) == expected
    assert content(folder) == before, "opening it changes nothing"


def grow(log: Log, source: random.Random, batches: int) -> None:
    """Appends batches, with keys and producers, some of them in transactions that are aborted or stay open."""
    for _ in range(batches):
        timestamp = NOW + source.randrange(400)
        epoch = log.leader_epochs.latest_epoch + source.choice((0, 0, 0, 1)) if log.leader_epochs.entries else 0
        producer_id = source.randrange(1, 5)
        entry = log.producers.state.producers.get(producer_id)
        if entry is not None and entry.current_transaction_first_offset >= 0 and source.random() < 0.4:
            marker = build_end_transaction_marker(
                ControlType.ABORT, producer_id=producer_id, producer_epoch=0, timestamp=timestamp, coordinator_epoch=0
            )
            log.append_as_leader(marker, epoch, origin=AppendOrigin.COORDINATOR)
            log.update_high_watermark(log.state.log_end_offset)
        else:
            sequence = 0 if entry is None or not entry.batches else entry.batches[-1].last_sequence + 1
            is_transactional = producer_id > 2
            append(
                log,
                idempotent(
                    sequence,
                    *[bytes(source.randrange(60))] * source.randrange(1, 5),
                    producer_id=producer_id,
                    timestamp=timestamp,
                    is_transactional=is_transactional,
                ),
                epoch,
            )


def test_a_large_active_segment_is_followed_by_an_empty_one_to_append_to(tmp_path: Path) -> None:
    files = LinkingFiles()
    log = open_small(files, str(tmp_path / "orders-0"))
    append(log, batch(bytes(MOST_COPIED_AGAIN)))
    append(log)
    frozen = FrozenLog(log)
    write_out(frozen, files, str(tmp_path / "copy"))
    copy = reopened(files, str(tmp_path / "copy"), frozen)
    assert copy.segments.base_offsets == [0, 2]
    assert all_bytes(copy) == all_bytes(log)
    sealed = (tmp_path / "copy" / f"{0:020d}.log").stat()
    append(copy)
    assert (tmp_path / "copy" / f"{0:020d}.log").stat().st_mtime_ns == sealed.st_mtime_ns
    assert copy.state.log_end_offset == 3


def test_sealed_segments_have_a_second_name_and_take_no_room(tmp_path: Path) -> None:
    files = LinkingFiles()
    log = open_small(files, str(tmp_path / "orders-0"), **SMALL_SEGMENTS)
    for _ in range(60):
        append(log)
    assert len(log.segments) > 1
    frozen = FrozenLog(log)
    write_out(frozen, files, str(tmp_path / "copy"))
    for segment in log.segments[:-1]:
        name = Path(segment.path(".log")).name
        assert (tmp_path / "copy" / name).stat().st_ino == (tmp_path / "orders-0" / name).stat().st_ino


def truncated(log: Log) -> None:
    truncate(log, 5)


def aged(log: Log) -> None:
    assert log.apply_retention(NOW + 10**12) > 0


@pytest.mark.parametrize("change", [truncated, aged])
def test_what_changes_the_segments_of_the_log_is_noticed(tmp_path: Path, change: Callable[[Log], None]) -> None:
    files = LinkingFiles()
    log = open_small(files, str(tmp_path / "orders-0"), **SMALL_SEGMENTS)
    for _ in range(60):
        append(log)
    frozen = FrozenLog(log)
    change(log)
    with pytest.raises(LogHasChanged, match="orders-0"):
        write_out(frozen, files, str(tmp_path / "copy"))


@pytest.mark.parametrize("change", [truncated, aged])
def test_a_log_that_is_truncated_or_aged_later_leaves_what_was_written_alone(
    tmp_path: Path, change: Callable[[Log], None]
) -> None:
    files = LinkingFiles()
    log = open_small(files, str(tmp_path / "orders-0"), **SMALL_SEGMENTS)
    for _ in range(60):
        append(log)
    all_bytes(log)  # opens the files of sealed segments
    frozen = FrozenLog(log)
    write_out(frozen, files, str(tmp_path / "copy"))
    before = content(tmp_path / "copy")
    change(log)
    for _ in range(60):
        append(log)
    log.close()
    assert content(tmp_path / "copy") == before


def test_files_that_cannot_be_linked_are_copied(tmp_path: Path) -> None:
    log = open_small(ForgetfulFiles(), **SMALL_SEGMENTS)
    for _ in range(60):
        append(log)
    frozen, expected = FrozenLog(log), what_it_has(log)
    write_out(frozen, LinkingFiles(), str(tmp_path / "copy"))
    assert what_it_has(reopened(LinkingFiles(), str(tmp_path / "copy"), frozen, **SMALL_SEGMENTS)) == expected

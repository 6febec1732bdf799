"""The index part of a dump: entries, checked against the segment beside them (Kafka's DumpLogSegments)."""

import os
from typing import TextIO

from odradek.protocol.batch_header import read_batch_header
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import read_records
from odradek.storage.dump.problems import DumpProblems
from odradek.storage.file_names import INDEX_SUFFIX, LOG_SUFFIX, offset_of_file
from odradek.storage.files import File, Files
from odradek.storage.segment.batch_scan import ScannedBatch, scan_batches
from odradek.storage.segment.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE

_NO_TIMESTAMP = -1


def dump_offset_index(
    files: Files, path: str, sanity_only: bool, verify_only: bool, out: TextIO, problems: DumpProblems
) -> None:
    base_offset = _base_offset(path)
    data = files.read_file(path)
    entries = _offset_entries(data, base_offset)
    if not entries:
        print(f"{path} is empty.", file=out)
        return
    if sanity_only:
        _report_sanity(path, _offset_index_fault(data, base_offset), out, problems)
        return
    file = files.open(_beside(path, LOG_SUFFIX))
    try:
        for number, (offset, position) in enumerate(entries):
            if offset == base_offset and number > 0:
                return  # the zeros of a preallocated file
            batch = next(scan_batches(file, position, file.size()), None)
            if batch is None or batch.last_offset != offset:
                problems.mismatch(path, offset, -1 if batch is None else batch.last_offset)
            if not verify_only:
                print(f"offset: {offset} position: {position}", file=out)
    finally:
        file.close()


def dump_time_index(
    files: Files, path: str, sanity_only: bool, verify_only: bool, out: TextIO, problems: DumpProblems
) -> None:
    base_offset = _base_offset(path)
    data = files.read_file(path)
    entries = [
        (
            int.from_bytes(data[at : at + 8], "big", signed=True),
            base_offset + int.from_bytes(data[at + 8 : at + TIME_ENTRY_SIZE], "big", signed=True),
        )
        for at in range(0, len(data) - TIME_ENTRY_SIZE + 1, TIME_ENTRY_SIZE)
    ]
    if sanity_only:
        _report_sanity(path, _time_index_fault(data, entries, base_offset), out, problems)
        return
    index_path = _beside(path, INDEX_SUFFIX)
    index = _offset_entries(files.read_file(index_path), base_offset) if files.exists(index_path) else []
    file = files.open(_beside(path, LOG_SUFFIX))
    try:
        previous = _NO_TIMESTAMP
        for number, (timestamp, offset) in enumerate(entries):
            if offset == base_offset and number > 0:
                return
            _check_time_entry(file, path, index, timestamp, offset, previous, problems)
            if not verify_only:
                print(f"timestamp: {timestamp} offset: {offset}", file=out)
            previous = timestamp
    finally:
        file.close()


def _check_time_entry(
    file: File,
    path: str,
    index: list[tuple[int, int]],
    timestamp: int,
    offset: int,
    previous: int,
    problems: DumpProblems,
) -> None:
    position = max((position for known, position in index if known <= offset), default=0)
    for batch in scan_batches(file, position, file.size()):
        if batch.last_offset >= offset:
            break
    else:
        problems.not_found(path, offset, -1)
        return
    if batch.last_offset != offset:
        problems.not_found(path, offset, batch.last_offset)
        return
    largest = _largest_timestamp(file, batch)
    if largest != timestamp:
        problems.timestamp_mismatch(path, timestamp, largest)
    if previous >= timestamp:
        problems.out_of_order(path, timestamp, previous)


def _largest_timestamp(file: File, batch: ScannedBatch) -> int:
    """Reads the records themselves, because a batch emptied by compaction has no timestamp."""
    if batch.magic < 2:
        return batch.max_timestamp
    data = file.read(batch.position, batch.size)
    try:
        records = read_records(data, 0, read_batch_header(data))
    except ProtocolError:
        return _NO_TIMESTAMP
    return max((record.timestamp for record in records), default=_NO_TIMESTAMP)


def _offset_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    return [
        (
            base_offset + int.from_bytes(data[at : at + 4], "big", signed=True),
            int.from_bytes(data[at + 4 : at + OFFSET_ENTRY_SIZE], "big", signed=True),
        )
        for at in range(0, len(data) - OFFSET_ENTRY_SIZE + 1, OFFSET_ENTRY_SIZE)
    ]


def _offset_index_fault(data: bytes, base_offset: int) -> str | None:
    if len(data) % OFFSET_ENTRY_SIZE:
        return f"its {len(data)} bytes are not a multiple of the entry size"
    if _offset_entries(data, base_offset)[-1][0] < base_offset:
        return "its last offset is below its base offset"
    return None


def _time_index_fault(data: bytes, entries: list[tuple[int, int]], base_offset: int) -> str | None:
    if len(data) % TIME_ENTRY_SIZE:
        return f"its {len(data)} bytes are not a multiple of the entry size"
    if entries and entries[-1][0] < entries[0][0]:
        return "its last timestamp is below its first one"
    if entries and entries[-1][1] < base_offset:
        return "its last offset is below its base offset"
    return None


def _report_sanity(path: str, fault: str | None, out: TextIO, problems: DumpProblems) -> None:
    if fault is None:
        print(f"{path} passed sanity check.", file=out)
    else:
        problems.unreadable.append(f"{path} is corrupt: {fault}")


def _base_offset(path: str) -> int:
    return offset_of_file(os.path.basename(path)) or 0


def _beside(path: str, suffix: str) -> str:
    return os.path.splitext(path)[0] + suffix

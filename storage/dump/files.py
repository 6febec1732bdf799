"""The text of `odradek dump-log`: segments, indexes, snapshots and checkpoints, in the form known from Kafka.

For the kinds of files that Kafka's DumpLogSegments knows, the lines are the same, so that scripts for one can read the
other. Problems in the files are printed last. A damaged file is reported, and the dump continues with the next one.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from odradek.protocol.batch_header import (
    MAGIC_POSITION,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    read_batch_header,
)
from odradek.protocol.control_records import ControlType, read_control_type, read_coordinator_epoch
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import Record, read_records
from odradek.storage.checkpoint import LEADER_EPOCH, CorruptCheckpoint, read_epochs, read_offsets
from odradek.storage.dump.coordinators import RecordTexts, plain_texts
from odradek.storage.dump.index import dump_offset_index, dump_time_index
from odradek.storage.dump.problems import DumpProblems
from odradek.storage.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file,
)
from odradek.storage.files import Files
from odradek.storage.producers.snapshot_format import CorruptSnapshot, read_snapshot
from odradek.storage.segment.batch_scan import CorruptSegment, StoredBatch, legacy_timestamp, whole_batches
from odradek.storage.segment.transaction_index import CorruptTransactionIndex, TransactionIndex

_CODECS = {int(codec): codec.name.lower() for codec in Compression}
_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
NO_LIMIT = 2**31 - 1


class DumpOptions:
    """Kafka's flags: `deep_iteration` prints records; `print_data_log` also prints their keys and values (and implies
    `deep_iteration`); `index_sanity_check` prints only whether an index is usable as it is, `verify_index_only` only
    its errors; `max_bytes` limits how much of a segment is read; `texts` decodes keys and values.
    """

    __slots__ = (
        "deep_iteration",
        "index_sanity_check",
        "max_bytes",
        "print_data_log",
        "skip_record_metadata",
        "texts",
        "verify_index_only",
    )

    def __init__(
        self,
        *,
        deep_iteration: bool = False,
        print_data_log: bool = False,
        index_sanity_check: bool = False,
        verify_index_only: bool = False,
        skip_record_metadata: bool = False,
        max_bytes: int = NO_LIMIT,
        texts: RecordTexts = plain_texts,
    ) -> None:
        self.deep_iteration = deep_iteration or print_data_log
        self.print_data_log = print_data_log
        self.index_sanity_check = index_sanity_check
        self.verify_index_only = verify_index_only
        self.skip_record_metadata = skip_record_metadata
        self.max_bytes = max_bytes
        self.texts = texts


def dump_files(files: Files, paths: Iterable[str], options: DumpOptions, out: TextIO, errors: TextIO) -> bool:
    """Dumps all files to `out` and their problems to `errors`; returns whether there are none."""
    problems = DumpProblems()
    for path in paths:
        print(f"Dumping {path}", file=out)
        try:
            _dump_file(files, path, options, out, problems)
        except BrokenPipeError:  # the reader of `out` is gone; the file is all right
            raise
        except (OSError, ProtocolError, CorruptCheckpoint, CorruptSnapshot, CorruptTransactionIndex) as error:
            problems.unreadable.append(f"{path}: {error}")
    problems.write(errors)
    return problems.none


def _dump_file(files: Files, path: str, options: DumpOptions, out: TextIO, problems: DumpProblems) -> None:
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    if suffix == INDEX_SUFFIX:
        dump_offset_index(files, path, options.index_sanity_check, options.verify_index_only, out, problems)
    elif suffix == TIME_INDEX_SUFFIX:
        dump_time_index(files, path, options.index_sanity_check, options.verify_index_only, out, problems)
    elif suffix == LOG_SUFFIX:
        _dump_log(files, path, options, out, problems)
    elif suffix == SNAPSHOT_SUFFIX:
        _write(out, _snapshot_lines(files, path))
    elif suffix == TRANSACTION_INDEX_SUFFIX:
        _write(out, _transaction_lines(files, path))
    elif name == LEADER_EPOCH:
        _write(out, (f"epoch: {epoch} startOffset: {offset}" for epoch, offset in read_epochs(files, path)))
    elif name.endswith("-checkpoint"):
        offsets = read_offsets(files, path).items()
        _write(out, (f"topic: {key.topic} partition: {key.partition} offset: {offset}" for key, offset in offsets))
    else:
        problems.unreadable.append(f"Ignoring unknown file {path}")


def _write(out: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=out)


def _snapshot_lines(files: Files, path: str) -> Iterator[str]:
    for entry in read_snapshot(files.read_file(path)):
        last = ""
        if entry.batches:
            batch = entry.batches[-1]
            last = (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
            )
        transaction = entry.current_transaction_first_offset
        yield (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {_optional(transaction)} "
            f"lastTimestamp: {entry.last_timestamp}{last}"
        )


def _transaction_lines(files: Files, path: str) -> Iterator[str]:
    base_offset = offset_of_file(os.path.basename(path)) or 0
    for entry in TransactionIndex(files, path, base_offset).entries():
        yield (
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None or value < 0 else f"OptionalLong[{value}]"


def _dump_log(files: Files, path: str, options: DumpOptions, out: TextIO, problems: DumpProblems) -> None:
    print(f"Log starting offset: {offset_of_file(os.path.basename(path))}", file=out)
    file = files.open(path)
    try:
        size = file.size()
        end = min(size, options.max_bytes)
        valid = 0
        walk = _OffsetWalk(lambda before, after: problems.non_consecutive(path, before, after))
        try:
            for batch in whole_batches(file, 0, end):
                _dump_batch(batch, options, out, problems, path, walk)
                valid = batch.position + batch.size
        except CorruptSegment as error:
            problems.unreadable.append(f"{path}: {error}")
        if size > valid and options.max_bytes == NO_LIMIT:
            problems.damaged = True
            print(f"Found {size - valid} invalid bytes at the end of {os.path.basename(path)}", file=out)
    finally:
        file.close()


class _OffsetWalk:
    """Reports records whose offset does not follow the previous one."""

    def __init__(self, report_gap: Callable[[int, int], None]) -> None:
        self._last: int | None = None
        self._report_gap = report_gap

    def see(self, offset: int) -> None:
        if self._last is not None and offset != self._last + 1:
            self._report_gap(self._last, offset)
        self._last = offset


def _dump_batch(
    batch: StoredBatch, options: DumpOptions, out: TextIO, problems: DumpProblems, path: str, walk: _OffsetWalk
) -> None:
    if batch.magic < 2:
        print(_legacy_line(batch), file=out)
        return
    header = read_batch_header(batch.data, batch.start)
    valid = check_crc(batch.data, batch.start, header)
    problems.damaged |= not valid
    print(_batch_line(batch, header, valid), file=out)
    if not options.deep_iteration:
        return
    try:
        records = read_records(batch.data, batch.start, header)
    except ProtocolError as error:
        problems.unreadable.append(f"{path}: the batch at {batch.position}: {error}")
        return
    for record in records:
        walk.see(record.offset)
        print(_record_line(record, header, options), file=out)


def _batch_line(batch: StoredBatch, header: BatchHeader, valid: bool) -> str:
    flags = f"isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)}"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} {flags} "
        f"deleteHorizonMs: {_optional(header.delete_horizon_ms)} position: {batch.position} "
        f"{_TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp} size: {batch.size} magic: {header.magic} "
        f"compresscodec: {_CODECS.get(header.compression, header.compression)} crc: {header.crc} "
        f"isvalid: {_java(valid)}"
    )


def _legacy_line(batch: StoredBatch) -> str:
    """A message (set) of format 0 or 1; its records are not read."""
    data = bytes(batch.data[batch.start : batch.start + batch.size])
    attributes = data[MAGIC_POSITION + 1]
    kind = "NoTimestampType" if batch.magic == 0 else "LogAppendTime" if attributes & 8 else "CreateTime"
    crc = int.from_bytes(data[12:16], "big")
    return (
        f"offset: {int.from_bytes(data[:8], 'big')} position: {batch.position} {kind}: {legacy_timestamp(data, 0)} "
        f"size: {batch.size} magic: {batch.magic} compresscodec: {_CODECS.get(attributes & 7, attributes & 7)} "
        f"crc: {crc} isvalid: {_java(zlib.crc32(data[MAGIC_POSITION:]) == crc)}"
    )


def _record_line(record: Record, header: BatchHeader, options: DumpOptions) -> str:
    parts = []
    if not options.skip_record_metadata:
        keys = ",".join(key for key, _ in record.headers)
        parts.append(
            f"offset: {record.offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
            f"sequence: {record.sequence} headerKeys: [{keys}]"
        )
        if header.is_control:
            parts.append(_control_text(record))
    if options.print_data_log and not header.is_control:
        key, payload = options.texts(record)
        if key is not None:
            parts.append(f"key: {key}")
        if payload is not None:
            parts.append(f"payload: {payload}")
    return f"| {' '.join(parts)}"


def _control_text(record: Record) -> str:
    control_type = read_control_type(record.key)
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        return f"endTxnMarker: {control_type.name} coordinatorEpoch: {read_coordinator_epoch(record.value)}"
    return f"controlType: {control_type.name}({int.from_bytes((record.key or b'')[2:4], 'big', signed=True)})"


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _java(value: bool) -> str:
    return "true" if value else "false"

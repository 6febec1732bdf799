"""Opening a log and repairing what an unclean shutdown of Kafka or Odradek left behind (Kafka's LogLoader).

In this order:
(A) leftovers: files marked for deletion are removed; an interrupted replacement of segments is finished or undone;
(B) segments: index files without a log file are removed; indexes that are missing or invalid are rebuilt from the log;
(C) recovery, unless the last shutdown was clean: every segment from the recovery point on is read, batch by batch. The
    log ends at the first byte that does not belong to a complete and valid batch: the rest of that segment is truncated
    and later segments are deleted. Indexes, transaction indexes, producer state and leader epochs are rebuilt on the
    way;
(D) the producer state is replayed to the log's end, and stray snapshots are removed.

On a full disk, data derived from the segments (indexes, snapshots, leader epochs) stays in memory and is written later,
so the log is still readable.

`open_log_steps` yields after every piece of work, so a caller can interleave other work.
"""

import random
import uuid
import zlib
from typing import Any, NamedTuple, TypeVar

import structlog

from odradek.protocol.batch_header import MAGIC_POSITION, check_crc, read_batch_header
from odradek.protocol.records import MAX_DECOMPRESSED_BYTES
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_of_file,
)
from odradek.storage.files import Files
from odradek.storage.log.leftovers import clear_leftovers
from odradek.storage.log.log import Log
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState
from odradek.storage.producers.replay import BATCHES_PER_STEP, Steps, apply_stored
from odradek.storage.segment.batch_scan import (
    CorruptSegment,
    StoredBatch,
    UnreadableBatch,
    legacy_timestamp,
    whole_batches,
)
from odradek.storage.segment.index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.storage.segment.transaction_index import CorruptTransactionIndex
from odradek.timer.clock import Clock

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Checkpointed(NamedTuple):
    """A log's offsets according to the checkpoints; its segments may disagree."""

    log_start_offset: int
    recovery_point: int
    cleaned_offset: int


def open_log(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    clock: Clock,
    **options: Any,
) -> Log:
    """Opens the log in `directory`, created if missing. Takes the options of `open_log_steps`. Raises OSError."""
    return _finished(open_log_steps(files, directory, topic_partition, config, clock, **options))


def _finished(steps: Steps[T]) -> T:
    """Runs all steps at once and returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def open_log_steps(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    clock: Clock,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    cleaned_offset: int = 0,
    contiguous: bool = False,
    random_source: random.Random | None = None,
    cache: SegmentCache | None = None,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    folders_to_sync: list[str] | None = None,
    topic_id: uuid.UUID | None = None,
) -> Steps[Log]:
    """Yields after every piece of work; the generator returns the log.

    `clean`: the last shutdown was clean. `recovery_point`, `log_start_offset`, `high_watermark`, `cleaned_offset`: from
    the checkpoints. `contiguous`: after the recovery point and what is cleaned, each segment starts where the previous
    one ends. This holds whenever the recovery point is known: our cleaner leaves no gaps after it, Kafka's none after
    the offset that it has cleaned to.
    `topic_id`: what `partition.metadata` says, if it has been read.
    `folders_to_sync`: receives the folder if it must be synced before the first append; with None it is synced here.
    """
    if not files.is_directory(directory):
        files.make_directories(directory)
    names_before = frozenset() if clean else frozenset(files.list_directory(directory))
    log = Log(
        files,
        directory,
        topic_partition,
        config,
        clock,
        random_source=random_source,
        cache=cache,
        producer_id_expiration_ms=producer_id_expiration_ms,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    checkpointed = Checkpointed(log_start_offset, recovery_point, cleaned_offset)
    if topic_id is None:
        log.folder.load_topic_id()
    else:
        log.folder.topic_id = topic_id
    clear_leftovers(files, directory)
    log.leader_epochs.load()
    log.producers.snapshots.scan()
    _load_segments(log, log_start_offset)
    yield
    recovered = None
    if log.segments and (not clean or not _ends_with_a_whole_batch(log.segments.active)):
        recovered = yield from _recover(log, checkpointed, contiguous)
    _settle(log, checkpointed, clean)
    yield
    log.producers.snapshots.remove_outside(log.state.log_start_offset, log.state.log_end_offset)
    log.producers.snapshots.remove_strays(log.segments.base_offsets)
    yield from log.producers.rebuild(log.state, log.segments, clock.wall_ms(), clean=clean)
    if recovered is not None:
        log.producers.state.remember_batches(recovered)
    if not clean and _has_removed(log, names_before):
        if folders_to_sync is None:
            files.sync_directory(directory)
        else:
            folders_to_sync.append(directory)
    log.update_high_watermark(high_watermark)
    for segment in log.segments:
        segment.release()  # ten thousand idle logs must not keep files open
    return log


def _has_removed(log: Log, names_before: frozenset[str]) -> bool:
    """Whether files were removed. The folder must then be synced: after a crash, these files must not reappear next to
    other batches with the same offsets.

    Snapshots do not count: a recovery that finds an old one takes a newer snapshot and removes the old one again.
    """
    gone = names_before.difference(log.files.list_directory(log.folder.path))
    return any(not name.endswith(SNAPSHOT_SUFFIX) for name in gone)


def _load_segments(log: Log, log_start_offset: int) -> None:
    names = log.files.list_directory(log.folder.path)
    bases = sorted(
        offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of_file(name)) is not None
    )
    for name in names:
        offset = offset_of_file(name)
        if name.endswith(SEGMENT_SUFFIXES) and offset is not None and offset not in bases:
            _log.warning("index without log removed", directory=log.folder.path, file=name)
            log.files.remove(f"{log.folder.path}/{name}")
    for base in bases:
        segment = LogSegment(log.files, log.folder.path, base, log.config, log.clock.wall_ms())
        log.segments.add(segment)
    present = set(names)
    for segment in log.segments:
        _check_indexes(log, segment, present, log_start_offset)


def _check_indexes(log: Log, segment: LogSegment, names: set[str], log_start_offset: int) -> None:
    """(B), by the names and sizes of the files. Their contents are checked when they are read."""
    reason = None
    for suffix, entry_size in ((INDEX_SUFFIX, OFFSET_ENTRY_SIZE), (TIME_INDEX_SUFFIX, TIME_ENTRY_SIZE)):
        path = segment.path(suffix)
        if path.rpartition("/")[2] not in names:
            reason = f"{suffix} is missing"
        elif log.files.size(path) % entry_size:
            reason = f"the size of {suffix} is not a multiple of the entry size"
    try:
        segment.transaction_index.entries()
    except CorruptTransactionIndex as error:
        _log.warning("transaction index rebuilt", directory=log.folder.path, reason=str(error))
        _rebuild_transaction_index(log, segment, log_start_offset)
    segment.transaction_index.unload()
    if reason is not None:
        _log.warning("indexes rebuilt", directory=log.folder.path, segment=segment.base_offset, reason=reason)
        segment.rebuild_indexes()
        segment.release()


def _rebuild_transaction_index(log: Log, segment: LogSegment, log_start_offset: int) -> None:
    """Rebuilds the index as far as the segment is readable. A crash that damaged the index may have damaged the segment
    too: data after the recovery point is read again, and truncated, in (C).
    """
    segment.transaction_index.reset()
    try:
        state = _finished(_state_at(log, segment.base_offset, log_start_offset))
        for batch in whole_batches(segment.file, 0, segment.size):
            if batch.magic < 2:
                continue
            aborted = apply_stored(state, batch, read_batch_header(batch.data, batch.start))
            if aborted is not None:
                segment.transaction_index.append_if_there_is_room(aborted)
    except (CorruptSegment, UnreadableBatch) as error:
        _log.warning("transaction index incomplete", directory=log.folder.path, reason=str(error))
    log.files.sync_file(segment.transaction_index.path)


def _ends_with_a_whole_batch(segment: LogSegment) -> bool:
    """Whether the active segment ends with a complete batch, as a clean shutdown guarantees."""
    last = segment.last_batch()
    if last is None:
        return segment.size == 0
    return last.position + last.size == segment.size and last.base_offset >= segment.base_offset


def _recover(log: Log, checkpointed: Checkpointed, contiguous: bool) -> Steps[ProducerState]:
    """(C). A crash may remove the end of a segment but keep the next one. If segments must be `contiguous`, the next
    one is deleted too: a follower would never fetch what is missing before it. Only an offset that a segment cannot
    take begins a new one after a gap.

    The generator returns the producer state built from the batches after the recovery point.
    """
    recovery_point = checkpointed.recovery_point
    contiguous_from = max(recovery_point, checkpointed.cleaned_offset)
    first = max(
        [base for base in log.segments.base_offsets if base <= recovery_point], default=log.segments.base_offsets[0]
    )
    to_recover = [segment for segment in log.segments if segment.base_offset >= first]
    log.leader_epochs.truncate_from_end(to_recover[0].base_offset)  # its file may be older than the batches
    state = yield from _state_at(log, to_recover[0].base_offset, checkpointed.log_start_offset)
    _log.info(
        "recovering log",
        partition=str(log.topic_partition),
        recovery_point=recovery_point,
        segments=len(to_recover),
    )
    for number, segment in enumerate(to_recover):
        following = to_recover[number + 1 : number + 2]
        limit = following[0].base_offset if following else segment.base_offset + MAX_RELATIVE_OFFSET + 1
        cut = yield from recover_segment(log, segment, state, limit)
        if segment is not log.segments.active:
            log.segments.note_unsynced(segment)
        log.producers.snapshots.take_if_there_is_room(state, sync=False)
        if contiguous and following and limit > contiguous_from:
            cut = cut or 0 < limit - segment.next_offset() <= MAX_RELATIVE_OFFSET
        if cut:
            later = to_recover[number + 1 :]
            if later:
                _log.error(
                    "segments after corruption deleted",
                    partition=str(log.topic_partition),
                    base_offsets=[segment.base_offset for segment in later],
                )
            for doomed in later:
                log.segments.delete(doomed, log.producers.snapshots, log.config.file_delete_delay_ms)
            break
    log.folder.mark_changed()
    log.segments.note_synced(log.segments.active)
    return state


def _state_at(log: Log, offset: int, log_start_offset: int) -> Steps[ProducerState]:
    return log.producers.state_at(offset, log_start_offset, log.segments, log.clock.wall_ms())


def recover_segment(log: Log, segment: LogSegment, state: ProducerState, limit: int) -> Steps[bool]:
    """Reads a whole segment and rebuilds its indexes. The generator returns whether the segment was truncated."""
    segment.reset_indexes()
    valid = 0
    next_offset = segment.base_offset
    try:
        for number, batch in enumerate(whole_batches(segment.file, 0, segment.size)):
            next_offset = _recover_batch(log, segment, state, batch, next_offset, limit)
            valid = batch.position + batch.size
            if number % BATCHES_PER_STEP == BATCHES_PER_STEP - 1:
                yield
        reason = "the last batch is cut off"
    except CorruptSegment as error:
        reason = error.reason
    if valid < segment.size:
        _log.warning(
            "segment truncated",
            partition=str(log.topic_partition),
            segment=segment.base_offset,
            position=valid,
            bytes_removed=segment.size - valid,
            reason=reason,
        )
        segment.cut_at(valid)
        segment.finish_indexes()
        return True
    segment.finish_indexes()
    return False


def _recover_batch(
    log: Log, segment: LogSegment, state: ProducerState, batch: StoredBatch, next_offset: int, limit: int
) -> int:
    """Validates one batch and applies it; returns the offset after it. Raises CorruptSegment."""
    if batch.magic < 2:
        return _recover_legacy(segment, batch, next_offset, limit)
    header = read_batch_header(batch.data, batch.start)
    if not check_crc(batch.data, batch.start, header):
        raise CorruptSegment(batch.position, "the checksum does not match")
    last_offset = header.last_offset
    if header.base_offset < next_offset or not header.base_offset - 1 <= last_offset < limit:
        raise CorruptSegment(
            batch.position, f"offsets {header.base_offset} to {last_offset} are not within {next_offset} and {limit}"
        )
    segment.index_recovered(batch.position, batch.size, last_offset, header.max_timestamp)
    epoch = header.partition_leader_epoch
    if epoch >= 0 and epoch > log.leader_epochs.latest_epoch:
        log.leader_epochs.assign(epoch, header.base_offset)
    aborted = apply_stored(state, batch, header)
    if aborted is not None:
        segment.transaction_index.append_if_there_is_room(aborted)
    state.map_end_offset = last_offset + 1
    return last_offset + 1


def _recover_legacy(segment: LogSegment, batch: StoredBatch, next_offset: int, limit: int) -> int:
    """A message (set) of format 0 or 1. Its CRC-32, at position 12, covers everything from the magic byte on."""
    data = batch.data[batch.start : batch.start + batch.size]
    offset = int.from_bytes(data[:8], "big")
    if zlib.crc32(data[MAGIC_POSITION:]) != int.from_bytes(data[12:16], "big"):
        raise CorruptSegment(batch.position, "the checksum does not match")
    if not next_offset <= offset < limit:
        raise CorruptSegment(batch.position, f"offset {offset} is not within {next_offset} and {limit}")
    segment.index_recovered(batch.position, batch.size, offset, legacy_timestamp(data, 0))
    return offset + 1


def _settle(log: Log, checkpointed: Checkpointed, clean: bool) -> None:
    """Sets the log's start and end, and creates a segment if there is none."""
    start_offset = end_offset = checkpointed.log_start_offset
    if log.segments:
        end_offset = log.segments.active.next_offset()
        if end_offset < start_offset:
            _log.warning(
                "log ends before its start",
                partition=str(log.topic_partition),
                log_end_offset=end_offset,
                log_start_offset=start_offset,
            )
            for segment in list(log.segments):
                log.segments.delete(segment, log.producers.snapshots, log.config.file_delete_delay_ms)
            log.leader_epochs.clear()
            end_offset = start_offset
    if not log.segments:
        log.segments.add(log.segments.create(start_offset, log.config))
    first_offset = log.segments.base_offsets[0]
    start_offset = max(start_offset, first_offset)
    log.state.opened(start_offset, end_offset, end_offset if clean else checkpointed.recovery_point)
    if end_offset > first_offset and (not log.leader_epochs.is_known or _lacks_epochs(log, start_offset, end_offset)):
        _read_epochs(log)
    log.leader_epochs.truncate_from_end(end_offset + 1)  # an epoch without a batch may start at the end
    log.leader_epochs.truncate_from_start(start_offset)


def _lacks_epochs(log: Log, start_offset: int, end_offset: int) -> bool:
    """Whether the log has records before its first known epoch. When records are deleted, their epochs are, too. After
    a crash the checkpoint of the log's start may be older than the file of the epochs: the records are there again.
    """
    known_from = next((offset for _, offset in log.leader_epochs.entries), end_offset)
    if known_from <= start_offset:
        return False
    first = next(log.segments.use(log.segments[0]).scan(0), None)
    return first is not None and first.base_offset < known_from and first.leader_epoch >= 0


def _read_epochs(log: Log) -> None:
    """Rebuilds a lost, damaged or incomplete leader-epoch-checkpoint from the epochs in the batches. What it has is
    kept: compaction may have removed all batches of an epoch.
    """
    known = log.leader_epochs.entries
    log.leader_epochs.clear()
    for segment in log.segments:
        for batch in log.segments.use(segment).scan(0):
            if batch.leader_epoch > log.leader_epochs.latest_epoch:
                log.leader_epochs.assign(batch.leader_epoch, batch.base_offset)
    for epoch, start_offset in sorted([*log.leader_epochs.entries, *known]):
        log.leader_epochs.assign(epoch, start_offset)

"""Compares what a broker has derived from the batches of a log with what a rebuild gives. Each function yields what is
wrong.

The offsets       the log ends where its batches do; its bounds are in order
The epochs        the leader epochs name the epoch of each batch
The indexes       entries point at batches; the largest times are those of the batches; none is missing
The transactions  the aborted ones are listed, each with its first and last offset
The producers     their epochs, last batches and open transactions, in memory and in the snapshots

A rebuild does not know what retention or compaction has removed. A log without either is compared in full.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from odradek.storage.file_names import INDEX_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, offset_file_name
from odradek.storage.log.log import Log
from odradek.storage.producers.producer_state_entry import ProducerStateEntry
from odradek.storage.producers.snapshot_format import CorruptSnapshot, read_snapshot
from odradek.storage.segment.index import SparseIndex
from odradek.storage.segment.transaction_index import CorruptTransactionIndex
from tests.simulation.log_contents import SegmentContents, all_batches, contents_of, file_content
from tests.simulation.rebuilt_state import Rebuilt, RebuiltProducer

OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
LONGEST_GAP = 4
"""Truncations begin to count anew, so some times the interval between two index entries may lie between them."""


def derived_wrongly(log: Log) -> Iterator[str]:
    """All that is wrong with what was derived for a log that is neither being truncated nor has failed."""
    contents = contents_of(log)
    yield from _offsets(log, contents)
    yield from _epochs(log, contents)
    for segment in contents:
        yield from _index(log, segment)
        yield from _times(log, segment)
    yield from _aborts(log, contents)
    yield from _producers(log, contents)


def is_complete(log: Log) -> bool:
    """Whether the log has all batches that it ever had."""
    return not log.config.compact and log.segments.base_offsets[0] == 0 and log.state.log_start_offset == 0


# --- offsets and epochs -----------------------------------------------------------------------------------------


def _offsets(log: Log, contents: Sequence[SegmentContents]) -> Iterator[str]:
    for segment in contents:
        if segment.damage:
            yield f"segment {segment.segment.base_offset}, which has {segment.damage}"
    end = log.segments.active.base_offset
    for batch in all_batches(contents):
        end = max(end, batch.header.next_offset)
    if log.state.log_end_offset != end:
        yield f"the end {log.state.log_end_offset}, but batches to {end}"
    if log.state.log_start_offset < log.segments.base_offsets[0]:
        yield f"the start {log.state.log_start_offset}, before its first segment {log.segments.base_offsets[0]}"
    try:
        log.state.check()
    except AssertionError as error:
        yield f"the offsets {error}"


def _epochs(log: Log, contents: Sequence[SegmentContents]) -> Iterator[str]:
    entries = log.leader_epochs.entries
    start = log.state.log_start_offset
    if sorted(entries) != entries or len({epoch for epoch, _ in entries}) != len(entries):
        yield f"leader epochs that do not ascend: {entries}"
        return
    if entries and entries[-1][1] > log.state.log_end_offset:
        yield f"a leader epoch beyond its end: {entries[-1]}"
    for batch in all_batches(contents):
        header = batch.header
        if header.last_offset < start:
            continue
        at = max(header.base_offset, start)
        known = next((epoch for epoch, first in reversed(entries) if first <= at), -1)
        if known != header.partition_leader_epoch:
            yield f"a batch of epoch {header.partition_leader_epoch} at {at}, where {entries} say {known}"
            return


# --- indexes ----------------------------------------------------------------------------------------------------


def _index(log: Log, contents: SegmentContents) -> Iterator[str]:
    segment = contents.segment
    where = f"segment {segment.base_offset}"
    positions = {batch.position: batch.header.last_offset for batch in contents.batches}
    entries = _entries(log, segment.offset_index, segment.path(INDEX_SUFFIX), OFFSET_ENTRY)
    for offset, position in entries:
        if positions.get(position) != segment.base_offset + offset:
            found = positions.get(position, "none")
            yield f"an index of {where} with a batch to {segment.base_offset + offset} at {position}: there is {found}"
            return
    largest = max((batch.header.size_in_bytes for batch in contents.batches), default=0)
    most = LONGEST_GAP * (segment.index_interval_bytes + largest)
    places = [0, *(position for _, position in entries), segment.size]
    if not _is_full(segment.offset_index, len(entries)) and any(
        after - before > most for before, after in pairwise(places)
    ):
        yield f"an index of {where} that lacks entries: {places}, one in {segment.index_interval_bytes} bytes"


def _is_full(index: SparseIndex, entries: int) -> bool:
    return entries >= index.max_entries - 1


def _times(log: Log, contents: SegmentContents) -> Iterator[str]:
    """An entry has the largest timestamp up to its offset. The last one of a sealed segment has the largest of all."""
    segment = contents.segment
    where = f"segment {segment.base_offset}"
    entries = _entries(log, segment.time_index, segment.path(TIME_INDEX_SUFFIX), TIME_ENTRY)
    largest = max((batch.header.max_timestamp for batch in contents.batches), default=-1)
    for timestamp, relative in entries:
        offset = segment.base_offset + relative
        times = [batch.header.max_timestamp for batch in contents.batches if batch.header.last_offset <= offset]
        if max(times, default=-1) != timestamp:
            yield f"a time index of {where} with {timestamp} up to {offset}, not {max(times, default=-1)}"
            return
    last = entries[-1][0] if entries else -1
    if segment is not log.segments.active and last != largest:
        yield f"a time index of {where} that ends with {last}, not {largest}"
    if segment.knows_its_times and segment.max_timestamp != largest:
        yield f"the largest time {segment.max_timestamp} of {where}, not {largest}"


def _entries(log: Log, index: SparseIndex, path: str, layout: struct.Struct) -> list[tuple[int, int]]:
    """The entries in memory, or those in the file of an index that is not loaded; offsets relative to the segment."""
    packed = index.packed(len(index)) if index.loaded else file_content(log, path)
    return list(layout.iter_unpack(packed[: len(packed) - len(packed) % layout.size]))


def _aborts(log: Log, contents: Sequence[SegmentContents]) -> Iterator[str]:
    rebuilt = Rebuilt()
    rebuilt.apply_all(all_batches(contents))
    first_base = log.segments.base_offsets[0]
    for segment in contents:
        base = segment.segment.base_offset
        try:
            listed = _listed(log, segment)
        except CorruptTransactionIndex as error:
            yield f"the transaction index of segment {base}: {error}"
            continue
        expected = [tuple(abort) for of, abort in rebuilt.aborts if of == base]
        if is_complete(log):
            if listed != expected:
                yield f"the aborted transactions {listed} in segment {base}, not {expected}"
            continue
        known = {(producer, last): first for producer, first, last, _ in listed}
        for producer, first, last, _ in expected:
            if known.get((producer, last), last) > first:
                yield f"no aborted transaction from {first} to {last} in the index of segment {base}: {listed}"
        markers = {batch.header.base_offset for batch in segment.batches if batch.header.is_control}
        for producer, first, last, _ in listed:
            if last not in markers and not log.config.compact:
                yield f"an aborted transaction of producer {producer} from {first} to {last} without a marker"
            elif (
                first >= first_base
                and not log.config.compact
                and (producer, last) not in {(each[0], each[2]) for each in expected}
            ):
                yield f"an aborted transaction of producer {producer} from {first} to {last}, which none is"


def _listed(log: Log, contents: SegmentContents) -> list[tuple[int, ...]]:
    """What the transaction index has, without loading it."""
    index = contents.segment.transaction_index
    loaded = index._entries
    return [entry[:4] for entry in (index._parse(file_content(log, index.path)) if loaded is None else loaded)]


# --- producers --------------------------------------------------------------------------------------------------


def _producers(log: Log, contents: Sequence[SegmentContents]) -> Iterator[str]:
    snapshots = {offset: _snapshot(log, offset) for offset in log.producers.snapshots.offsets}
    rebuilt = Rebuilt()
    for batch in chain(all_batches(contents), [None]):
        at = log.state.log_end_offset if batch is None else batch.header.base_offset
        for offset in [offset for offset in snapshots if offset <= at]:
            entries = snapshots.pop(offset)
            if entries is not None:
                reasons = _differences(log, entries, rebuilt, is_old=log.config.compact)
                yield from (f"a snapshot at {offset}, {reason}" for reason in reasons)
        if batch is not None:
            rebuilt.apply(batch)
    yield from (f"a snapshot at {offset}, beyond its end {log.state.log_end_offset}" for offset in snapshots)
    state = log.producers.state
    yield from (f"producers, {reason}" for reason in _differences(log, state.producers, rebuilt, is_old=False))
    begun = {entry.current_transaction_first_offset for entry in state.producers.values()} - {-1}
    if begun != set(state.ongoing) or list(state.ongoing) != sorted(state.ongoing):
        yield f"open transactions from {list(state.ongoing)}, of producers that have them from {sorted(begun)}"


def _snapshot(log: Log, offset: int) -> dict[int, ProducerStateEntry] | None:
    path = f"{log.folder.path}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
    try:
        return {entry.producer_id: entry for entry in read_snapshot(file_content(log, path))}
    except CorruptSnapshot:  # found when it is read, and passed over
        return None


def _differences(log: Log, known: dict[int, ProducerStateEntry], rebuilt: Rebuilt, *, is_old: bool) -> Iterator[str]:
    """`is_old`: what was open then may have been aborted and compacted since. A log that was loaded or truncated with a
    marker above its high watermark counts the transaction as ended: its records may be compacted, and a truncation may
    then remove the marker.
    """
    start = log.state.log_start_offset
    uncleaned = log.segments.base_offsets[-1 if log.config.compact else 0]
    for producer_id in sorted(known.keys() | rebuilt.producers.keys()):
        entry, batches = known.get(producer_id), rebuilt.producers.get(producer_id)
        if batches is None:
            if is_complete(log):
                yield f"of which {producer_id} has no batch"
            elif entry is not None and not is_old and entry.current_transaction_first_offset >= uncleaned:
                yield f"of which {producer_id} has no open transaction from {entry.current_transaction_first_offset}"
        elif entry is None:
            if batches.last_offset >= start and not (log.config.compact and not batches.batches):
                yield f"without {producer_id}, which has a batch to {batches.last_offset}"
        else:
            reason = _difference(log, entry, batches, is_exact=is_complete(log), is_old=is_old)
            if reason:
                yield f"of which {producer_id} has {reason}"


def _difference(log: Log, entry: ProducerStateEntry, rebuilt: RebuiltProducer, *, is_exact: bool, is_old: bool) -> str:
    """What an entry has wrongly. If the log was compacted or begins later, more may be known than the batches say."""
    batches = [batch[:3] for batch in entry.batches]  # a snapshot has the time of the producer, not of its last batch
    expected = [batch[:3] for batch in rebuilt.batches]
    start, opened = log.state.log_start_offset, entry.current_transaction_first_offset
    may_differ = not is_exact and (0 <= opened < rebuilt.open_from or 0 <= rebuilt.open_from < start <= opened)
    may_differ |= is_old and opened >= 0
    if opened != rebuilt.open_from and not may_differ:
        return f"a transaction from {opened}, not {rebuilt.open_from}"
    if log.config.compact:
        last, last_expected = (each[-1][1] if each else -1 for each in (batches, expected))
        is_older = (entry.producer_epoch, last) < (rebuilt.epoch, last_expected)
        return f"the batches {batches} of epoch {entry.producer_epoch}, not {expected}" if is_older else ""
    if rebuilt.last_offset < start:
        return ""
    if entry.producer_epoch != rebuilt.epoch:
        return f"epoch {entry.producer_epoch}, not {rebuilt.epoch}"
    both = min(len(batches), len(expected))
    if batches[len(batches) - both :] != expected[len(expected) - both :] or (expected and not batches):
        return f"the batches {batches}, not {expected}"
    if entry.coordinator_epoch != rebuilt.coordinator_epoch and (is_exact or rebuilt.coordinator_epoch >= 0):
        return f"coordinator epoch {entry.coordinator_epoch}, not {rebuilt.coordinator_epoch}"
    if entry.last_timestamp != rebuilt.last_timestamp_ms:
        return f"the time {entry.last_timestamp}, not {rebuilt.last_timestamp_ms}"
    return ""

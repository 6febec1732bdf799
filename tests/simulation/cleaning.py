"""Compares a log before and after one step of a cleaning, in which some segments were replaced by one.

(A) What is not below the last stable offset stays as it is.
(B) A record goes only if a later one below that offset has its key and counts; or if its transaction was aborted, it
    has no key, or it is a tombstone whose delete horizon has passed.
(C) A marker goes only after all records of its transaction, and when its delete horizon has passed.
(D) What stays has its offset, epoch, producer and content. A producer's last batch stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.protocol.record import Record
from odradek.protocol.records import read_records
from odradek.storage.log.log import Log
from tests.simulation.log_contents import Batch, all_batches, contents_of, why_undecodable


class KeptRecord(NamedTuple):
    """A record of a log. `counts`: its transaction, if it has one, was not aborted."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    counts: bool
    horizon_ms: int | None


class Cleaning:
    """Create it before the segments are replaced; then `judge`."""

    def __init__(self, log: Log, stable_offset: int, now_ms: int) -> None:
        """`stable_offset`: the last stable offset when the cleaning began; `now_ms`: by the wall clock."""
        self._stable_offset = stable_offset
        self._now_ms = now_ms
        self._before = _decodable(log)
        self._last_of_producers = {
            entry.batches[-1].last_offset: producer_id
            for producer_id, entry in log.producers.state.producers.items()
            if entry.batches
        }

    def judge(self, log: Log) -> Iterator[str]:
        """What was removed or changed, and should not have been."""
        after = _decodable(log)
        before_by_base = {batch.header.base_offset: batch for batch in self._before}
        after_by_base = {batch.header.base_offset: batch for batch in after}
        yield from self._above(before_by_base, after_by_base)
        yield from self._records(after)
        yield from self._markers(after, after_by_base)
        for base, batch in after_by_base.items():
            reason = _changed(before_by_base.get(base), batch)
            if reason:
                yield reason
        for batch in self._before:
            producer_id = self._last_of_producers.get(batch.header.last_offset)
            if producer_id == batch.header.producer_id and batch.header.base_offset not in after_by_base:
                yield f"no last batch of producer {producer_id}, which was at {batch.header.base_offset}"

    def _above(self, before: dict[int, Batch], after: dict[int, Batch]) -> Iterator[str]:
        """(A)"""
        for base, batch in before.items():
            if batch.header.last_offset >= self._stable_offset and (
                base not in after or after[base].content != batch.content
            ):
                yield f"a change of the batch at {base}, although only {self._stable_offset} offsets are stable"
                return

    def _records(self, after: Sequence[Batch]) -> Iterator[str]:
        """(B)"""
        latest: dict[bytes, int] = {}
        records = _records_of(self._before)
        for record in records:
            if record.key is not None and record.counts and record.offset < self._stable_offset:
                latest[record.key] = record.offset
        left = {record.offset: record for record in _records_of(after)}
        for record in records:
            there = left.get(record.offset)
            if there is None:
                is_expired = (
                    record.value is None and record.horizon_ms is not None and record.horizon_ms <= self._now_ms
                )
                is_last = record.key is not None and record.counts and latest.get(record.key) == record.offset
                if is_last and not is_expired:
                    yield f"no record at {record.offset}, which was the last one of {record.key!r}"
                    return
            elif there[:3] != record[:3] or there.timestamp_ms != record.timestamp_ms:
                yield f"{there} where {record} was"
                return

    def _markers(self, after: Sequence[Batch], after_by_base: dict[int, Batch]) -> Iterator[str]:
        """(C)"""
        for batch in self._before:
            header = batch.header
            left = after_by_base.get(header.base_offset)
            if batch.end_of_transaction is None or (left is not None and left.end_of_transaction is not None):
                continue
            horizon = header.delete_horizon_ms
            if horizon is None or horizon > self._now_ms:
                yield f"no marker at {header.base_offset}, which was to stay until {horizon}"
            orphan = _data_before(after, header.producer_id, header.base_offset)
            if orphan is not None:
                yield f"no marker at {header.base_offset}, but the records at {orphan} that it ended"


def _decodable(log: Log) -> list[Batch]:
    return [batch for batch in all_batches(contents_of(log)) if not why_undecodable(batch.content)]


def _data_before(batches: Sequence[Batch], producer_id: int, marker_offset: int) -> int | None:
    """The offset of a batch with records of the transaction that the marker at this offset would end."""
    found = None
    for batch in batches:
        header = batch.header
        if header.base_offset >= marker_offset:
            break
        if header.producer_id != producer_id or not header.is_transactional:
            continue
        if batch.end_of_transaction is not None:
            found = None
        elif header.record_count and not header.is_control:
            found = header.base_offset
    return found


def _records_of(batches: Sequence[Batch]) -> list[KeptRecord]:
    """The clients' records of these batches, in order."""
    found: list[KeptRecord] = []
    is_aborted: dict[int, bool] = {}
    for batch in reversed(batches):
        header = batch.header
        end = batch.end_of_transaction
        if end is not None:
            is_aborted[header.producer_id] = end.is_abort
        if header.is_control:
            continue
        counts = not (header.is_transactional and is_aborted.get(header.producer_id, False))
        for record in reversed(_decoded(batch)):
            kept = (record.offset, record.key, record.value, record.timestamp, counts, header.delete_horizon_ms)
            found.append(KeptRecord(*kept))
    return found[::-1]


def _decoded(batch: Batch) -> list[Record]:
    return read_records(batch.content, 0, batch.header)


def _changed(before: Batch | None, after: Batch) -> str:
    """(D)"""
    if before is None:
        return f"a batch at {after.header.base_offset} that was not there"
    names = ("last_offset_delta", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    for name in names:
        was, now = getattr(before.header, name), getattr(after.header, name)
        if was != now:
            return f"{name} {now}, not {was}, of the batch at {after.header.base_offset}"
    return ""

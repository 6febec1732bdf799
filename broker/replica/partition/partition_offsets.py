"""Offsets by timestamp, for ListOffsets.

(A) Latest (-1) is the end of what the requester may read: the high watermark, the last stable offset, or the log end
    offset for a replica.
(B) Earliest (-2) is the log start offset. So is the earliest that is stored locally (-4, KIP-405), since there is no
    tiered storage. For the same reason nothing is the latest that is tiered (-5, KIP-1005) or the earliest that is
    still to be uploaded (-6, KIP-1023).
(C) A timestamp (or -3, the record with the largest timestamp, KIP-734) finds the first record at or after it, if the
    requester may already read that record.
(D) Just after an election the high watermark may still be below the start of the new leader's epoch. A consumer then
    receives OFFSET_NOT_AVAILABLE rather than an offset that would appear to go back. (KIP-207)

Source: Kafka's Partition.fetchOffsetForTimestamp and UnifiedLog.legacyFetchOffsetsBefore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.background.stepwise import Steps
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.log_offsets import TimestampOffset

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log.log import Log

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NOT_FOUND = TimestampOffset(-1, -1, -1)
READ_COMMITTED = 1


def offset_for_timestamp(
    partition: Partition,
    timestamp: int,
    isolation_level: int | None,
    current_leader_epoch: int,
    *,
    require_leader: bool,
) -> Steps[TimestampOffset]:
    """Finds an offset. `timestamp` is in ms or one of the constants above; `isolation_level` is None for a replica.
    Returns NOT_FOUND if no record is that late. A search by timestamp may take several steps.

    Raises the errors of Partition.local_log, and OFFSET_NOT_AVAILABLE (D).
    """
    log = partition.local_log(current_leader_epoch, require_leader=require_leader)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return (yield from log.search.offset_for_timestamp(EARLIEST)) or NOT_FOUND
    lagging = isolation_level is not None and partition.epoch_start_offset > log.state.high_watermark
    bound = _last_fetchable(log, isolation_level)
    if timestamp == LATEST:
        if lagging:
            raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampOffset(-1, bound, partition.leader_epoch)
    found = yield from log.search.offset_for_timestamp(timestamp)
    if found is not None and 0 <= found.offset < bound:
        return found
    if lagging:
        raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return NOT_FOUND


def _last_fetchable(log: Log, isolation_level: int | None) -> int:
    if isolation_level is None:
        return log.state.log_end_offset
    return log.last_stable_offset if isolation_level == READ_COMMITTED else log.state.high_watermark


def offsets_before(
    partition: Partition, timestamp: int, limit: int, now_ms: int, *, from_consumer: bool, require_leader: bool = True
) -> list[int]:
    """ListOffsets v0: returns up to `limit` start offsets of segments last written at or before `timestamp`, largest
    first.

    `now_ms` is the time of the log's end. Raises the errors of Partition.local_log.
    """
    log = partition.local_log(require_leader=require_leader)
    starts = [
        (max(segment.base_offset, log.state.log_start_offset), log.segments.use(segment).file.modified_ms())
        for segment in log.segments
    ]
    if log.segments[-1].size > 0:
        starts.append((log.state.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        starts = starts[:1]
    elif timestamp != LATEST:
        while starts and starts[-1][1] > timestamp:
            starts.pop()
    offsets = sorted((offset for offset, _ in starts), reverse=True)[: max(limit, 0)]
    high_watermark = log.state.high_watermark
    if from_consumer and offsets and offsets[0] > high_watermark:
        return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return offsets

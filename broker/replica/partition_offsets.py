"""Offsets by time: what ListOffsets asks a partition for.

(A) Latest (-1) is where the asker may read to: the high watermark, the last stable offset, or the log's end for a
    replica.
(B) Earliest (-2) is the log start offset.
(C) A time (or -3, the record with the largest time, KIP-734) finds the first record at or after it, if that one may
    be read already.
(D) Just after an election the high watermark may still be below where the new leader's epoch began: then a consumer
    is told OFFSET_NOT_AVAILABLE rather than an offset that would seem to go back. (KIP-207)

Source: Kafka's Partition.fetchOffsetForTimestamp and UnifiedLog.legacyFetchOffsetsBefore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.background.stepwise import Steps
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.log_offsets import TimestampOffset

if TYPE_CHECKING:
    from odradek.broker.replica.partition import Partition
    from odradek.storage.log import Log

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
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
    """`timestamp` in ms or one of the names above; `isolation_level` None for a replica. NOT_FOUND where no record is
    that late. A search for a time may take several steps.

    Raises what Partition.local_log raises, and OFFSET_NOT_AVAILABLE (D).
    """
    log = partition.local_log(current_leader_epoch, require_leader=require_leader)
    if timestamp == EARLIEST:
        return (yield from log.offset_for_timestamp(EARLIEST)) or NOT_FOUND
    lagging = isolation_level is not None and partition.epoch_start_offset > log.high_watermark
    bound = _last_fetchable(log, isolation_level)
    if timestamp == LATEST:
        if lagging:
            raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampOffset(-1, bound, partition.leader_epoch)
    found = yield from log.offset_for_timestamp(timestamp)
    if found is not None and 0 <= found.offset < bound:
        return found
    if lagging:
        raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return NOT_FOUND


def _last_fetchable(log: Log, isolation_level: int | None) -> int:
    if isolation_level is None:
        return log.log_end_offset
    return log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark


def offsets_before(
    partition: Partition, timestamp: int, limit: int, now_ms: int, *, from_consumer: bool, require_leader: bool = True
) -> list[int]:
    """ListOffsets v0: up to `limit` offsets where segments begin that were last written at or before `timestamp`,
    largest first.

    `now_ms` is the time of the log's end. Raises what Partition.local_log raises.
    """
    log = partition.local_log(require_leader=require_leader)
    starts = [
        (max(segment.base_offset, log.log_start_offset), log.use(segment).file.modified_ms())
        for segment in log.segments
    ]
    if log.segments[-1].size > 0:
        starts.append((log.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        starts = starts[:1]
    elif timestamp != LATEST:
        while starts and starts[-1][1] > timestamp:
            starts.pop()
    offsets = sorted((offset for offset, _ in starts), reverse=True)[: max(limit, 0)]
    high_watermark = log.high_watermark
    if from_consumer and offsets and offsets[0] > high_watermark:
        return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return offsets

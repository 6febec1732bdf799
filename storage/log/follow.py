"""A follower's append: many batches as the leader's log has them, from one fetch, checked and written together.

(A) A batch after the end of `records` that is not whole is ignored: a fetch may end anywhere.
(B) The leader has checked the records. The follower checks what the disk or the network may have damaged: checksum,
    header, and that offsets ascend. Sequences are not checked, as in Kafka (AppendOrigin.REPLICATION). Gaps between
    offsets are legal: the leader may have compacted its log, or a gap of its own.
(C) On any error nothing is changed: all batches are checked before the first one is written, and log_writer's cases (B)
    and (C) hold for the rest.
(D) The batches need not have the leader's segments: a batch rolls a segment where the leader's append would, by this
    broker's settings. A new segment begins after the last batch even if the next one begins later, so that segments
    never have gaps between them until they are compacted (recovery).
(E) If the leader deleted records up to the middle of a batch (DeleteRecords), a follower that starts over at that
    offset receives the whole batch. An empty log therefore accepts a first batch that begins before the log's end and
    contains it. Any other batch below the log's end is UnexpectedAppendOffset.
(F) Appended bytes are not kept in memory for consumers (tail.py), who read from the leader; kept parts of a fetch would
    hold all of it, and would displace the tails of logs that this broker leads. The bytes are written to the file from
    `records`, and not copied.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from odradek.protocol.batch_header import LOG_OVERHEAD, BatchHeader, CorruptBatch, check_crc, iter_batches
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.writer import LogWriter
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.replay import marker_in
from odradek.storage.segment.transaction_index import AbortedTransaction

MAX_OFFSET = 0x7FFFFFFFFFFFFFFE


@mypyc_attr(native_class=False)
class UnexpectedAppendOffset(ProtocolError):
    """The first batch, from `first_offset` to `last_offset`, begins below the log's end."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class FollowerAppendInfo:
    """The result of an append. `max_timestamp`: of all batches, in ms, -1 for none.

    `flush_required`: the topic's flush.messages requires a flush before the follower fetches on.
    """

    __slots__ = ("first_offset", "flush_required", "last_offset", "max_timestamp", "record_count", "size_in_bytes")

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        record_count: int,
        size_in_bytes: int,
        max_timestamp: int,
        flush_required: bool,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.record_count = record_count
        self.size_in_bytes = size_in_bytes
        self.max_timestamp = max_timestamp
        self.flush_required = flush_required


class LogFollower:
    """Appends to one log; see Log.append_as_follower."""

    __slots__ = ("_folder", "_leader_epochs", "_producers", "_segments", "_state", "_writer")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        producers: ProducerState,
        leader_epochs: LeaderEpochs,
        writer: LogWriter,
    ) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._producers = producers
        self._leader_epochs = leader_epochs
        self._writer = writer

    def append(self, records: bytes | memoryview, config: LogConfig) -> FollowerAppendInfo | None:
        data = memoryview(records)
        positions, headers = self._check(data)
        if not headers:
            return None
        markers = _markers(data, positions, headers)
        first, last = headers[0], headers[-1]
        if first.base_offset < self._state.log_end_offset:
            self._writer.rebase(first.base_offset, config)
        end = positions[-1] + last.batch_length + LOG_OVERHEAD
        now_ms = self._folder.clock.wall_ms()
        aborted = self._aborted_by(headers, markers)
        created = self._writer.write_copied(data[:end], positions, headers, aborted, config, now_ms)
        rolls = dict(created)
        for number, header in enumerate(headers):
            if number in rolls:
                self._writer.begin_segment(rolls[number])
            self._apply(header, markers.get(number))
        end_offset = last.base_offset + last.last_offset_delta + 1
        self._producers.map_end_offset = end_offset
        self._state.appended(end_offset)
        return FollowerAppendInfo(
            first.base_offset,
            end_offset - 1,
            sum([header.record_count for header in headers]),
            end - positions[0],
            max([header.max_timestamp for header in headers]),
            end_offset - self._state.recovery_point >= config.flush_messages,
        )

    # ---- checks

    def _check(self, data: memoryview) -> tuple[list[int], list[BatchHeader]]:
        """Returns the positions and headers of all whole batches (A, B, E). Raises ProtocolError."""
        positions: list[int] = []
        headers: list[BatchHeader] = []
        end_offset = self._state.log_end_offset
        for position, header in iter_batches(data):
            first_offset = header.base_offset
            last_offset = first_offset + header.last_offset_delta
            if not check_crc(data, position, header):
                raise CorruptBatch(f"the checksum of the batch at offset {first_offset} does not match")
            if last_offset < first_offset or last_offset > MAX_OFFSET:
                raise CorruptBatch(f"a batch has the offsets {first_offset} to {last_offset}")
            if first_offset < end_offset and not (not headers and self._begins_within(first_offset, last_offset)):
                raise self._unexpected(headers, first_offset, last_offset)
            end_offset = last_offset + 1
            positions.append(position)
            headers.append(header)
        if headers and self._state.truncating_to is not None:
            raise self._unexpected([], headers[0].base_offset, headers[0].last_offset)
        return positions, headers

    def _begins_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether the log is empty and starts within the batch (E)."""
        end_offset = self._state.log_end_offset
        is_empty = len(self._segments) == 1 and self._segments[0].size == 0
        return is_empty and 0 <= first_offset < end_offset <= last_offset

    def _unexpected(self, before: list[BatchHeader], first_offset: int, last_offset: int) -> ProtocolError:
        if before:
            return CorruptBatch(f"offset {first_offset} follows offset {before[-1].last_offset}")
        where = f"{self._folder.topic_partition} ends at {self._state.log_end_offset}"
        if self._state.truncating_to is not None:
            where = f"{self._folder.topic_partition} is being truncated to {self._state.truncating_to}"
        return UnexpectedAppendOffset(
            f"{where}, but the first batch has the offsets {first_offset} to {last_offset}", first_offset, last_offset
        )

    # ---- producers and epochs

    def _aborted_by(self, headers: list[BatchHeader], markers: dict[int, Marker]) -> dict[int, AbortedTransaction]:
        """Returns the transactions that the batches abort, by the marker's number. A transaction may begin in an
        earlier batch of the same append.
        """
        aborted: dict[int, AbortedTransaction] = {}
        if not any(marker.aborted for marker in markers.values()):
            return aborted
        state = self._producers.branch([header.producer_id for header in headers if header.producer_id >= 0])
        for number, header in enumerate(headers):
            if header.producer_id >= 0:
                transaction = state.apply(header, markers.get(number))
                if transaction is not None:
                    aborted[number] = transaction
        return aborted

    def _apply(self, header: BatchHeader, marker: Marker | None) -> None:
        epoch = header.partition_leader_epoch
        if epoch >= 0 and epoch != self._leader_epochs.latest_epoch:
            self._leader_epochs.assign(epoch, header.base_offset)
        if header.producer_id >= 0:
            self._producers.apply(header, marker)


def _markers(data: memoryview, positions: list[int], headers: list[BatchHeader]) -> dict[int, Marker]:
    """Returns the transaction markers among the batches, by number."""
    markers: dict[int, Marker] = {}
    for number, header in enumerate(headers):
        if header.is_control and header.producer_id >= 0:
            marker = marker_in(data, positions[number], header)
            if marker is not None:
                markers[number] = marker
    return markers

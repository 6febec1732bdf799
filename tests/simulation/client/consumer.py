"""A consumer of assigned partitions: it reads all of them for ever, and notes every answer in the history.

(A) One fetch at a time goes to each broker, with the partitions that it leads, within a fetch session (KIP-227).
(B) After a change of leaders a position is checked by OffsetForLeaderEpoch before it is used (KIP-320).
(C) OFFSET_OUT_OF_RANGE: below the log's start the consumer goes on there. Beyond its end it has seen records that are
    gone: it notes the truncation and goes on at the end.
(D) Partitions without a known leader make it ask for metadata, also while it reads others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.protocol.batch_header import CorruptBatch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from odradek.protocol.records import iter_batches, read_control_type, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster, Leader
from tests.simulation.client.requests import FetchFrom, Session, fetch_request
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.final_state import texts_of
from tests.simulation.history import History, Read, ReadRecord, Truncated
from tests.simulation.log_contents import why_undecodable
from tests.simulation.log_history import Undecodable
from tests.simulation.retention_history import Skipped

MAX_WAIT_MS = 500
REFRESH_S = 0.5
MAX_BYTES = 1 << 20
PARTITION_MAX_BYTES = 64 << 10
EARLIEST, LATEST = -2, -1
ABORT = 0
ISOLATION = {False: 0, True: 1}


@dataclass(eq=False)
class Position:
    """Where a partition is read. `checked_epoch`: the leader epoch for which (B) has been done."""

    offset: int
    last_epoch: int = -1
    checked_epoch: int = -1
    is_busy: bool = False


class FetchSession:
    """A consumer's half of a fetch session with one broker."""

    def __init__(self) -> None:
        self._session = Session(0, 0)
        self._known: dict[TopicPartition, FetchFrom] = {}

    def next(
        self, wanted: Mapping[TopicPartition, FetchFrom]
    ) -> tuple[dict[TopicPartition, FetchFrom], list[TopicPartition], Session]:
        """The partitions to name in the next request, those to forget, and the session."""
        if self._session.epoch == 0:
            changed, forgotten = dict(wanted), []
        else:
            changed = {key: start for key, start in wanted.items() if self._known.get(key) != start}
            forgotten = [key for key in self._known if key not in wanted]
        self._known = dict(wanted)
        return changed, forgotten, self._session

    def answered(self, session_id: int, code: ErrorCode) -> None:
        """Moves to the next epoch, or to a new session."""
        if code is not ErrorCode.NONE or session_id == 0:
            self.reset()
        else:
            self._session = Session(session_id, self._session.epoch + 1)

    def reset(self) -> None:
        """The broker may not know what was sent last: the next request starts a session."""
        self._session = Session(0, 0)


class Consumer:
    """Start `run` as a task of the client's node. `committed`: isolation.level=read_committed."""

    def __init__(
        self, cluster: Cluster, history: History, *, name: str, is_committed: bool = False, min_bytes: int = 1
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.history = history
        self.positions: dict[TopicPartition, Position] = {}
        self.records = 0
        self._is_committed = is_committed
        self._min_bytes = min_bytes
        self._sessions: dict[int, FetchSession] = {}
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions from these offsets, and no others. Answers under way are dropped."""
        self.positions = {partition: Position(offset) for partition, offset in offsets.items()}
        self._wake.set()

    async def run(self) -> None:
        """Fetches for ever."""
        self.cluster.on_leaders = self._wake.set
        loop = asyncio.get_running_loop()
        refreshed_at = loop.time()
        while True:
            self._wake.clear()
            missing = self._begin_fetches()
            if missing and (not self._fetching or loop.time() > refreshed_at + REFRESH_S):  # (D)
                refreshed_at = loop.time()
                await self.cluster.refresh({partition.topic for partition in missing})
                await self.cluster.back_off()
            else:
                await self._wake.wait()

    def _begin_fetches(self) -> list[TopicPartition]:
        """Starts a fetch from each leader without one. Returns the partitions without a leader."""
        by_leader: dict[int, dict[TopicPartition, Leader]] = {}
        missing = []
        for partition, position in self.positions.items():
            leader = self.cluster.leader_of(partition)
            if leader is None:
                missing.append(partition)
            elif not position.is_busy:
                by_leader.setdefault(leader.broker_id, {})[partition] = leader
        for broker_id, partitions in by_leader.items():
            if broker_id not in self._fetching:
                self._fetching[broker_id] = asyncio.get_running_loop().create_task(self._fetch(broker_id, partitions))
        return missing

    async def _fetch(self, broker_id: int, partitions: Mapping[TopicPartition, Leader]) -> None:
        positions = {partition: self.positions[partition] for partition in partitions}
        for position in positions.values():
            position.is_busy = True
        try:
            is_stale = await self._check_positions(broker_id, positions, partitions)
            ready = {
                partition: position
                for partition, position in positions.items()
                if position.checked_epoch == partitions[partition].epoch
            }
            if ready:
                is_stale |= await self._fetch_ready(broker_id, ready, partitions)
        except (NotSent, Unanswered):
            is_stale = True
            self._sessions.pop(broker_id, None)
        if is_stale:
            await self.cluster.refresh()
            await self.cluster.back_off()
        for position in positions.values():
            position.is_busy = False
        del self._fetching[broker_id]
        self._wake.set()

    # --- (B) ----------------------------------------------------------------------------------------------------

    async def _check_positions(
        self, broker_id: int, positions: Mapping[TopicPartition, Position], leaders: Mapping[TopicPartition, Leader]
    ) -> bool:
        """Returns whether the metadata may be stale. Raises NotSent and Unanswered."""
        to_check = {}
        for partition, position in positions.items():
            epoch = leaders[partition].epoch
            if position.checked_epoch != epoch:
                if position.last_epoch < 0:
                    position.checked_epoch = epoch
                else:
                    to_check[partition] = position
        if not to_check:
            return False
        of_partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        of_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        topics = _by_topic(
            (
                partition.topic,
                of_partition(
                    partition=partition.partition,
                    current_leader_epoch=leaders[partition].epoch,
                    leader_epoch=position.last_epoch,
                ),
            )
            for partition, position in to_check.items()
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[of_topic(topic=name, partitions=found) for name, found in topics.items()]
        )
        answer = await self.cluster.ask_broker(broker_id, request)
        is_stale = False
        for topic in answer.topics:
            for found in topic.partitions:
                key = TopicPartition(topic.topic, found.partition)
                if found.error_code != ErrorCode.NONE:
                    is_stale = True
                    continue
                position = to_check[key]
                position.checked_epoch = leaders[key].epoch
                if 0 <= found.end_offset < position.offset:
                    self._truncated(key, position, found.end_offset)
        return is_stale

    def _truncated(self, partition: TopicPartition, position: Position, end_offset: int) -> None:
        if self.positions.get(partition) is position:
            self.history.note(
                Truncated(process=self.name, partition=partition, position=position.offset, end_offset=end_offset)
            )
        position.offset = end_offset
        position.last_epoch = -1

    # --- (A) ----------------------------------------------------------------------------------------------------

    async def _fetch_ready(
        self, broker_id: int, ready: Mapping[TopicPartition, Position], leaders: Mapping[TopicPartition, Leader]
    ) -> bool:
        """Returns whether the metadata may be stale. Raises NotSent and Unanswered."""
        session = self._sessions.setdefault(broker_id, FetchSession())
        wanted = {
            partition: FetchFrom(position.offset, PARTITION_MAX_BYTES, leaders[partition].epoch, position.last_epoch)
            for partition, position in ready.items()
        }
        changed, forgotten, number = session.next(wanted)
        request = fetch_request(
            changed,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=self._min_bytes,
            max_bytes=MAX_BYTES,
            isolation_level=ISOLATION[self._is_committed],
            session=number,
            forgotten=forgotten,
        )
        response = await self.cluster.ask_broker(broker_id, request)
        code = ErrorCode.of(response.error_code)
        session.answered(response.session_id, code)
        is_stale = False
        for topic in response.responses:
            for data in topic.partitions:
                key = TopicPartition(topic.topic, data.partition_index)
                position = ready.get(key)
                if position is None or self.positions.get(key) is not position:
                    continue  # assigned anew meanwhile
                if data.error_code == ErrorCode.NONE:
                    self._read(key, position, leaders[key], broker_id, data)
                elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._find_position(key, position, broker_id)
                else:
                    is_stale = True
        return is_stale

    def _read(self, key: TopicPartition, position: Position, leader: Leader, broker_id: int, data: Any) -> None:
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            self._truncated(key, position, data.diverging_epoch.end_offset)
            return
        try:
            records, end, last_epoch = self._records_of(key, data, position.offset)
        except CorruptBatch as error:
            self._note_undecodable(key, position.offset, str(error))
            return
        read = Read(
            process=self.name,
            partition=key,
            position=position.offset,
            next_position=end,
            is_committed=self._is_committed,
            leader_epoch=leader.epoch,
            broker_id=broker_id,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            records=records,
        )
        self.history.note(read)
        position.offset = end
        if last_epoch >= 0:
            position.last_epoch = last_epoch
        self.records += len(records)

    def _records_of(self, key: TopicPartition, data: Any, start: int) -> tuple[list[ReadRecord], int, int]:
        """The visible records from an offset on, the position behind them, and the epoch of the last batch."""
        found: list[ReadRecord] = []
        end, last_epoch = start, -1
        aborted = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset)
        open_aborted: dict[int, None] = {}
        content = bytes(data.records or b"")
        for position, header in iter_batches(content):
            if position + header.size_in_bytes > len(content):
                break
            while aborted and aborted[0].first_offset <= header.last_offset:
                open_aborted[aborted.pop(0).producer_id] = None
            end, last_epoch = header.next_offset, header.partition_leader_epoch
            batch = content[position : position + header.size_in_bytes]
            reason = why_undecodable(batch)
            if reason:
                self._note_undecodable(key, header.base_offset, reason)
            elif header.is_control:
                if header.record_count and read_control_type(read_records(batch, 0, header)[0].key) == ABORT:
                    open_aborted.pop(header.producer_id, None)
            elif not (self._is_committed and header.is_transactional and header.producer_id in open_aborted):
                found += [ReadRecord(offset, last_epoch, text) for offset, text in texts_of(batch) if offset >= start]
        return found, max(end, start), last_epoch

    def _note_undecodable(self, key: TopicPartition, base_offset: int, reason: str) -> None:
        self.history.note(Undecodable(process=self.name, partition=key, base_offset=base_offset, reason=reason))

    # --- (C) ----------------------------------------------------------------------------------------------------

    async def _find_position(self, key: TopicPartition, position: Position, broker_id: int) -> None:
        earliest = await self._offset_at(key, EARLIEST, broker_id)
        latest = await self._offset_at(key, LATEST, broker_id)
        if earliest is None or latest is None:
            return
        if position.offset < earliest:
            skipped = Skipped(process=self.name, partition=key, position=position.offset, start_offset=earliest)
            self.history.note(skipped)
            position.offset, position.last_epoch = earliest, -1
        elif position.offset > latest:
            self._truncated(key, position, latest)

    async def _offset_at(self, key: TopicPartition, timestamp: int, broker_id: int) -> int | None:
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=key.partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=key.topic, partitions=[partition])]
        )
        answer = await self.cluster.ask_broker(broker_id, request)
        found = answer.topics[0].partitions[0]
        return found.offset if found.error_code == ErrorCode.NONE else None


def _by_topic(found: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for topic, item in found:
        topics.setdefault(topic, []).append(item)
    return topics

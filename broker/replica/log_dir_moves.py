"""AlterReplicaLogDirs: moves replicas from one log directory of this broker to another while they are in use.

Each move is a background task: it copies the log piece by piece in a thread, and swaps the copy in at the end
(`future_replica.py` and `log_moves.py` in `storage/directories/`). `num.replica.alter.log.dirs.threads` limits the
number of concurrent moves (default: one per directory); `replica.alter.log.dirs.io.max.bytes.per.second` limits the
bytes that they copy together in a second. A move that fails (the target is full, say) is logged and canceled; the
replica stays where it is. A move that a stop interrupts starts over at the next start.

Source: Kafka's `ReplicaManager.alterReplicaLogDirs`, `ReplicaAlterLogDirsManager`; KIP-113.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.background.tasks import Threads
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.file_names import has_room_for_a_future

if TYPE_CHECKING:
    from odradek.storage.directories.future_replica import LogMove, MoveJob
    from odradek.storage.directories.log_manager import LogManager

LONGEST_PAUSE_S = 1.0
COST_OF_MOVE = 100
"""The cost of starting a move, which creates a folder and files, in items of a step."""
UNLIMITED = 0x7FFFFFFFFFFFFFFF

log = structlog.get_logger("broker.replica")


class LogDirMoves:
    """`threads`: the number of concurrent moves; `bytes_per_second`: their shared copy rate, read again for every
    pause.
    """

    def __init__(
        self,
        log_manager: LogManager,
        partitions: HostedPartitions,
        background: Threads,
        threads: int | None = None,
        *,
        bytes_per_second: Callable[[], int],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._logs = log_manager
        self._moves = log_manager.moves
        self._partitions = partitions
        self._background = background
        self._turns = asyncio.Semaphore(threads or len(log_manager.directories))
        self._running = 0

    def alter(self, wanted: Mapping[TopicPartition, str]) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Starts moves to the log directories in `wanted`. NONE if the move has started or the replica is already
        there; INVALID_TOPIC_EXCEPTION (the topic name is too long for a future folder), LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE (only other brokers have the replica), UNKNOWN_TOPIC_OR_PARTITION. In
        the last two cases, this broker creates the replica in that directory if it is assigned the partition later.
        """
        outcomes = {}
        pace = Pace()
        for key, path in wanted.items():
            before = self._moves.get(key)
            outcomes[key] = self._alter(key, path)
            if pace.step_ends(COST_OF_MOVE if self._moves.get(key) is not before else 1):
                yield
        return outcomes

    def _alter(self, key: TopicPartition, path: str) -> ErrorCode:
        if not has_room_for_a_future(key):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if path not in self._logs.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        under_way = self._moves.get(key)
        if under_way is not None and under_way.directory != path:
            self._moves.abandon(key)
        try:
            partition_log = self._partitions.find(key).log
        except ProtocolError as error:
            return self._not_here(key, path, error.code)
        if self._logs.directory_of(partition_log) == path or self._moves.get(key) is not None:
            return ErrorCode.NONE
        return self._begin(key, path)

    def _not_here(self, key: TopicPartition, path: str, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            return code
        self._moves.prefer(key, path)
        return ErrorCode.REPLICA_NOT_AVAILABLE if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else code

    def _begin(self, key: TopicPartition, path: str) -> ErrorCode:
        try:
            move = self._moves.begin(key, path)
        except OSError as error:
            log.error("move not started", partition=str(key), target=path, reason=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        log.info("move started", partition=str(key), source=self._logs.directory_of(move.log), target=path)
        self._background.spawn(self._carry_out(key, move), f"move {key}")
        return ErrorCode.NONE

    def resume(self, key: TopicPartition) -> None:
        """Continues a move that a stop interrupted, once the partition is served again."""
        path = self._moves.interrupted.pop(key, None)
        if path is not None and self._logs.directory_of(self._logs.logs[key]) != path:
            self._begin(key, path)

    def forget(self, key: TopicPartition) -> None:
        """Cancels the move of a partition that is no longer served."""
        self._moves.abandon(key)

    async def _carry_out(self, key: TopicPartition, move: LogMove) -> None:
        try:
            async with self._turns:
                await self._copy(move)
        except OSError as error:  # of a move that is not abandoned: what becomes of others is not looked at
            log.error("move failed", partition=str(key), target=move.directory, reason=str(error))
            self._moves.abandon(key)

    async def _copy(self, move: LogMove) -> None:
        self._running += 1
        try:
            while not move.abandoned and not await self._advance(move):
                pass
        finally:
            self._running -= 1

    async def _advance(self, move: LogMove) -> bool:
        """Copies one piece. Returns True after the last one."""
        job = move.next_job()
        if job is not None:
            await self._run(move, job)
            if job.size:
                await self._pause(move, job.size)
            return False
        await self._run(move, move.settle())
        return not move.abandoned and self._moves.finish(move)

    async def _run(self, move: LogMove, job: MoveJob) -> None:
        await self._background.run_in_thread(job.run)
        if not move.abandoned:
            move.finished(job)

    async def _pause(self, move: LogMove, size: int) -> None:
        """Yields to the event loop, and sleeps as long as the rate requires for `size` bytes; a changed rate takes
        effect within a second.
        """
        await asyncio.sleep(0)
        left = float(size * self._running)
        while not move.abandoned and (rate := self._bytes_per_second()) < UNLIMITED:
            seconds = left / rate if rate else math.inf
            if seconds <= LONGEST_PAUSE_S:
                await asyncio.sleep(seconds)
                return
            await asyncio.sleep(LONGEST_PAUSE_S)
            left -= LONGEST_PAUSE_S * rate

"""Creates the logs of one request together: the loop creates their files, a few at a time, and never waits for the
disk. Threads sync all of them concurrently, and each directory of log.dirs once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from odradek.broker.background.background import run_all_in_threads
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_creation import DirectorySync, LogCreation, NewLog

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.storage.directories.log_manager import LogManager

LOGS_PER_TURN = 4
"""The number of logs whose files are created before yielding to the event loop."""


class LogCreations:
    def __init__(self, log_manager: LogManager, background: Threads) -> None:
        self._logs = log_manager
        self._background = background

    async def make(self, new_logs: Iterable[NewLog]) -> dict[TopicPartition, ProtocolError]:
        """Creates the missing logs; returns the failures once the other logs are on disk."""
        failures: dict[TopicPartition, ProtocolError] = {}
        begun: list[LogCreation] = []
        await self._forget_predecessors(new_logs := list(new_logs))
        for number, new_log in enumerate(new_logs):
            try:
                creation = self._logs.creator.begin(new_log)
            except ProtocolError as error:
                failures[new_log.topic_partition] = error
            else:
                begun += () if creation is None else (creation,)
            if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
        if begun:
            failures |= await self._finish(begun)
        return failures

    async def _forget_predecessors(self, new_logs: list[NewLog]) -> None:
        write = self._logs.creator.predecessors_checkpoints([new_log.topic_partition for new_log in new_logs])
        if write is not None:
            with contextlib.suppress(OSError):  # creating the first of them tries again, and reports the error
                await self._background.run_in_thread(write)

    async def _finish(self, begun: list[LogCreation]) -> dict[TopicPartition, ProtocolError]:
        await self._run([creation.run for creation in begun])
        errors = await self.sync_directories(dict.fromkeys(creation.directory for creation in begun))
        failures = {}
        for creation in begun:
            creation.error = creation.error or errors.get(creation.directory)
            try:
                self._logs.creator.finish(creation)
            except ProtocolError as error:
                failures[creation.log.topic_partition] = error
        return failures

    async def sync_directories(self, paths: Collection[str]) -> dict[str, OSError]:
        """Syncs directories of log.dirs; returns the failures."""
        syncs = [DirectorySync(self._logs.files, path) for path in paths]
        await self._run([sync.run for sync in syncs])
        return {sync.path: sync.error for sync in syncs if sync.error is not None}

    async def _run(self, functions: list[Callable[[], None]]) -> None:
        """A single function has no use for threads of its own, which take longer to start than most syncs take."""
        if len(functions) == 1:
            await self._background.run_in_thread(functions[0])
        else:
            await run_all_in_threads(functions)

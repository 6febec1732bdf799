"""Runs `log.cleaner.threads` cleaners of compacted logs (Kafka's LogCleaner), each of which cleans one log at a time.

A cleaner cleans the dirtiest log repeatedly until no log is due, then sleeps for log.cleaner.backoff.ms. New settings
take effect at once, as in Kafka, where they restart the cleaners: a cleaner that sleeps or waits for the throttle is
woken.

A small log is cleaned in slices on the event loop, any other log in a separate process, which is started on demand and
stopped at the end of the round (see docs/decisions/a-process-that-cleans.md). Both are driven the same way: after each
step the throttle paces the bytes processed, and the clean is abandoned if the log has changed. The process only reads
and writes files; segments are swapped here, on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from odradek.storage.checkpoint import CLEANER_OFFSET, RECOVERY_POINT
from odradek.storage.cleaner.candidates import LogToClean
from odradek.storage.cleaner.job import CleanDone, CleanedGroup, CleanJob, CleanStats, UncleanableLog
from odradek.storage.cleaner.manager import Clean, CleanerManager
from odradek.storage.files import Files, OsFiles

if TYPE_CHECKING:
    from odradek.broker.background.background import Background
    from odradek.broker.cleaning.cleaner_process import CleanerProcess
    from odradek.broker.settings.config import BrokerConfig
    from odradek.storage.cleaner.cleaner import Progress
    from odradek.storage.directories.log_manager import LogManager
    from odradek.timer import Clock

SMALL_BYTES = 1 << 20
"""A log with at most this many bytes to clean is cleaned on the event loop."""
BURST_MS = 300
"""The I/O allowed at once after a pause, as time at the configured rate."""
SLICE_BYTES = 32 << 10
"""Bytes read per step on the event loop: less than a millisecond of work, unless a batch is larger."""

log = structlog.get_logger("storage.cleaner")


class LastClean(NamedTuple):
    """A cleaner's last clean, for the metrics."""

    stats: CleanStats
    seconds: float


class Throttle:
    """Limits the I/O of all cleaners together (log.cleaner.io.max.bytes.per.second; Kafka's Throttler). Times in ms by
    the monotonic clock.
    """

    __slots__ = ("_free_at_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    def delay_ms(self, size: int, now_ms: int) -> int:
        """Counts `size` bytes read or written; returns how long to wait before the next ones. The clock shows whole
        milliseconds, so whoever waits for a part of one would look again and again.
        """
        self._free_at_ms = max(self._free_at_ms, now_ms - BURST_MS) + size * 1000 / self.bytes_per_second
        return max(math.ceil(self._free_at_ms - now_ms), 0)


class LogCleaner:
    """`last` is keyed by cleaner number. `files`: only OsFiles are cleaned in a separate process."""

    def __init__(
        self, logs: LogManager, config: BrokerConfig, background: Background, clock: Clock, files: Files
    ) -> None:
        self.manager = CleanerManager(logs, clock)
        self.last: dict[int, LastClean] = {}
        self._logs = logs
        self._config = config
        self._background = background
        self._clock = clock
        self._files = files
        self._throttle = Throttle(config.log_cleaner_io_max_bytes_per_second)
        self._tasks: list[asyncio.Task[None]] = []
        self._new_settings = asyncio.Event()

    def start(self) -> None:
        self._tasks = [self._start_one(number) for number in range(self._config.log_cleaner_threads)]

    def _start_one(self, number: int) -> asyncio.Task[None]:
        return self._background.spawn(self._run(number), f"log cleaner {number}")

    def settings_changed(self) -> None:
        """Starts missing cleaners and wakes all. Surplus cleaners end after their current round."""
        if self._throttle.bytes_per_second != self._config.log_cleaner_io_max_bytes_per_second:
            self._throttle = Throttle(self._config.log_cleaner_io_max_bytes_per_second)
        for number, task in enumerate(self._tasks):
            if task.done() and number < self._config.log_cleaner_threads:
                self._tasks[number] = self._start_one(number)
        while self._tasks and len(self._tasks) < self._config.log_cleaner_threads:
            self._tasks.append(self._start_one(len(self._tasks)))
        self._new_settings.set()
        self._new_settings = asyncio.Event()

    async def _rest(self, milliseconds: float) -> None:
        """Sleeps for `milliseconds`, or until the settings change."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(milliseconds / 1000):
                await self._new_settings.wait()

    @property
    def dead(self) -> int:
        """The number of cleaners that should be running but have ended."""
        return sum(task.done() for task in self._tasks[: self._config.log_cleaner_threads])

    @property
    def recopy_percent(self) -> int:
        read = sum(last.stats.bytes_read for last in self.last.values())
        written = sum(last.stats.bytes_written for last in self.last.values())
        return 100 * written // max(read, 1)

    @property
    def max_buffer_utilization_percent(self) -> int:
        return int(100 * max((last.stats.buffer_utilization for last in self.last.values()), default=0))

    @property
    def max_clean_time_secs(self) -> int:
        return int(max((last.seconds for last in self.last.values()), default=0))

    async def _run(self, number: int) -> None:
        while number < self._config.log_cleaner_threads:
            await self.clean_all(number)
            await self._rest(self._config.log_cleaner_backoff_ms)

    async def clean_all(self, number: int = 0) -> None:
        """Cleans all logs that are due, the dirtiest first."""
        self.manager.begin_round()
        to_clean = self.manager.dirtiest()
        if to_clean is None:
            return
        from odradek.broker.cleaning.cleaner_process import CleanerProcess  # not before there is something to clean

        process = CleanerProcess()
        try:
            while to_clean is not None:
                await self._clean(to_clean, number, process)
                await asyncio.sleep(0)
                to_clean = self.manager.dirtiest()
        finally:
            await process.stop()

    async def _clean(self, to_clean: LogToClean, number: int, process: CleanerProcess) -> None:
        clean = self._begin(to_clean)
        if clean is None:
            return
        end_offset = None
        replaced: list[str] = []
        try:
            # After a crash, recovery reads segments above the checkpointed recovery point. Cleaned ones must be below.
            await self._background.run_in_thread(
                self._logs.take_checkpoint(RECOVERY_POINT, self._logs.directory_of(clean.log))
            )
            started_ms = self._clock.now_ms()
            done = await self._drive(clean, process, replaced)
            if done is not None:
                end_offset = done.end_offset
                self._log_clean(clean, done, number, (self._clock.now_ms() - started_ms) / 1000)
        except (ProcessLookupError, UncleanableLog) as error:
            if self.manager.is_valid(clean):
                self.manager.mark_uncleanable(clean.log, str(error))
        except OSError as error:
            if self.manager.is_valid(clean):
                self.manager.postpone(clean.log, str(error))
        finally:
            self.manager.done(clean, end_offset)
        await self._remove_later(clean, replaced)
        await self._write_checkpoint()

    def _begin(self, to_clean: LogToClean) -> Clean | None:
        config = self._config
        cleaners = max(config.log_cleaner_threads, 1)
        map_bytes = int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor) // cleaners
        chunk_bytes = max(config.log_cleaner_io_buffer_size // cleaners // 2, 1)
        if self._is_small(to_clean):
            chunk_bytes = min(chunk_bytes, SLICE_BYTES)
        return self.manager.begin(to_clean, max(map_bytes, 1), chunk_bytes)

    def _is_small(self, to_clean: LogToClean) -> bool:
        return to_clean.total_bytes <= SMALL_BYTES or not isinstance(self._files, OsFiles)

    async def _drive(self, clean: Clean, process: CleanerProcess, replaced: list[str]) -> CleanDone | None:
        """Runs a clean. Returns None if it was abandoned. Adds the files that are no longer needed to `replaced`."""
        work = self._on_the_loop(clean.job) if self._is_small(clean.to_clean) else process.clean(clean.job)
        async with aclosing(work) as steps:
            async for step in steps:
                if isinstance(step, CleanDone):
                    return step
                if not self.manager.is_valid(clean):
                    log.info("clean abandoned", partition=str(clean.log.topic_partition))
                    if isinstance(step, CleanedGroup):
                        self.manager.discard(clean, step)
                    return None
                if not isinstance(step, CleanedGroup):
                    await self._pace(step)
                elif step.changed:
                    replaced += self.manager.swap(clean, step)
        return None

    async def _on_the_loop(self, job: CleanJob) -> AsyncGenerator[Progress | CleanDone, None]:
        from odradek.storage.cleaner.cleaner import clean_steps

        steps = clean_steps(self._files, job)
        try:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    yield end.value
                    return
                yield step
                await asyncio.sleep(0)
        finally:
            with contextlib.suppress(OSError):  # of files that nobody needs: the clean was abandoned
                steps.close()

    async def _pace(self, size: int) -> None:
        throttle = self._throttle
        delay_ms = throttle.delay_ms(size, self._clock.now_ms())
        due_ms = self._clock.now_ms() + delay_ms
        while delay_ms > 0 and self._throttle is throttle:
            await self._rest(delay_ms)
            delay_ms = due_ms - self._clock.now_ms()

    async def _remove_later(self, clean: Clean, replaced: list[str]) -> None:
        """Schedules the removal of replaced files, after the names of their replacements are synced to disk."""
        if not replaced:
            return
        try:
            await self._background.run_in_thread(self._files.sync_directory, clean.log.folder.path)
        except OSError as error:  # old files stay until the next start
            log.warning("directory not synced", directory=clean.log.folder.path, reason=str(error))
            return
        for path in replaced:
            clean.log.folder.removals.add(path, clean.log.config.file_delete_delay_ms)

    async def _write_checkpoint(self) -> None:
        try:
            await self._background.run_in_thread(self._logs.take_checkpoint(CLEANER_OFFSET))
        except OSError as error:
            log.error("checkpoint not written", checkpoint=CLEANER_OFFSET, reason=str(error))

    def _log_clean(self, clean: Clean, done: CleanDone, number: int, seconds: float) -> None:
        stats = done.stats
        self.last[number] = LastClean(stats, seconds)
        fields: dict[str, Any] = {
            "partition": str(clean.log.topic_partition),
            "dirty_from": clean.job.first_dirty_offset,
            "dirty_to": done.end_offset,
            "seconds": round(seconds, 3),
            **stats.as_dict(),
        }
        log.info("log cleaned", cleaner=number, **fields)

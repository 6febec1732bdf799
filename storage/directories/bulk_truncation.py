"""Truncating many logs together, as a broker must when it begins to follow other leaders: one write of the checkpoints
for all of them, then the steps of each log (truncation), whose syncs are grouped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_checkpoints import CHECKPOINTED, CheckpointWrite, LogCheckpoints
from odradek.storage.directories.registry import LogRegistry
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import LogTruncation, Target, TruncationSteps, Work

_log = structlog.get_logger(__name__)

LOGS_PER_JOB = 64
"""Each log has a few files open while it is synced."""
LOGS_PER_STEP = 64

Results = dict[TopicPartition, ProtocolError | None]
BulkSteps = Generator[Work | None, None, Results]


class BulkTruncation:
    """One truncation of several logs. `steps` yields what must run before the next step: a function that does not
    raise, to run in any thread, or None for a turn of the loop. It returns the error of each partition, or None.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        checkpoints: LogCheckpoints,
        targets: Mapping[TopicPartition, Target],
    ) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._targets = targets
        self._results: Results = dict.fromkeys(targets)
        self._begun: dict[TopicPartition, tuple[Log, LogTruncation]] = {}
        self._under_way: dict[TopicPartition, tuple[Log, TruncationSteps]] = {}

    def steps(self) -> BulkSteps:
        try:
            yield from self._begin()
            if self._begun:
                yield from self._write_checkpoints()
            self._under_way = {
                partition: (log, truncation.steps()) for partition, (log, truncation) in self._begun.items()
            }
            while self._under_way:
                yield from self._round()
            return self._results
        finally:
            for _, steps in self._under_way.values():
                steps.close()
            for _, truncation in self._begun.values():
                truncation.give_up()

    def _begin(self) -> Generator[None, None, None]:
        for number, (partition, target) in enumerate(self._targets.items()):
            log = self._logs.get(partition)
            if log is None:
                self._results[partition] = _gone(partition)
                continue
            truncation = log.truncation(target)
            try:
                if truncation.begin():
                    self._begun[partition] = log, truncation
            except ProtocolError as error:
                self._results[partition] = error
            if number % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                yield None

    def _write_checkpoints(self) -> Generator[Work | None, None, None]:
        """Writes the checkpoints, in which nothing that will be removed counts any more. Where this fails, nothing is
        removed; the logs in other directories are truncated.
        """
        writes: list[CheckpointWrite] = []
        for name in CHECKPOINTED:
            writes.append(self._checkpoints.take(name))
            yield None
        yield _Together([*writes]).run
        errors = {path: error for write in writes for path, error in write.errors.items()}
        for partition, (log, truncation) in list(self._begun.items()):
            error = errors.get(LogRegistry.directory_of(log))
            if error is None:
                continue
            _log.error("truncation not begun", partition=str(partition), reason=str(error))
            truncation.give_up()
            message = f"{partition} cannot be truncated: {error}"
            self._results[partition] = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message)
            del self._begun[partition]

    def _round(self) -> Generator[Work | None, None, None]:
        """Takes the steps of each log up to its next sync, or to its end."""
        jobs: list[Work] = []
        for partition, (log, steps) in list(self._under_way.items()):
            job = yield from self._advance(partition, log, steps)
            yield None
            if job is not None:
                jobs.append(job)
            if len(jobs) == LOGS_PER_JOB:
                yield _Together(jobs).run
                jobs = []
        if jobs:
            yield _Together(jobs).run

    def _advance(
        self, partition: TopicPartition, log: Log, steps: TruncationSteps
    ) -> Generator[None, None, Work | None]:
        """Returns the log's next sync; None if its truncation has ended."""
        try:
            while self._logs.get(partition) is log:
                job = next(steps)
                if job is not None:
                    return job
                yield None
            steps.close()
            self._results[partition] = _gone(partition)
        except StopIteration:
            pass
        except ProtocolError as error:
            self._results[partition] = error
        del self._under_way[partition]
        return None


class _Together:
    """Runs several functions. Each notes its own OSError."""

    def __init__(self, functions: list[Callable[[], None]]) -> None:
        self._functions = functions

    def run(self) -> None:
        for function in self._functions:
            with contextlib.suppress(OSError):
                function()


def _gone(partition: TopicPartition) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no log here")

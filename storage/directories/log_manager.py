"""All logs of a broker, in all directories of log.dirs (Kafka's LogManager).

Lifecycle: `open` (locks the directories and reads their owner), `claim` (assigns them to this broker and cluster),
`load`, then `get_or_create`, `delete` and the periodic work, then `shutdown`. Nothing here starts a thread or a timer.
Long work is returned to the caller:

* `load_steps`: an iterator that does a bounded piece of work per step, then `take_load_syncs`; * `take_flush_jobs`,
`take_removals`: objects with a `run` for any thread.

The folder of a partition that is not `known` is logged and left alone.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import MAX_DECOMPRESSED_BYTES
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    PARTITION_METADATA,
    RECOVERY_POINT,
    CorruptCheckpoint,
    read_partition_metadata,
)
from odradek.storage.directories.bulk_truncation import BulkSteps, BulkTruncation
from odradek.storage.directories.log_checkpoints import LogCheckpoints
from odradek.storage.directories.log_creation import LogCreator
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_moves import LogMoves
from odradek.storage.directories.meta_properties import (
    check_meta_properties,
    write_meta_properties,
)
from odradek.storage.directories.registry import LogRegistry
from odradek.storage.directories.shutdown import Syncs, close_all, one_after_the_other
from odradek.storage.files import Files, is_full
from odradek.storage.log.flushing import FlushJob
from odradek.storage.log.log import Log
from odradek.storage.log.recovery import open_log, open_log_steps
from odradek.storage.log.truncation import Target
from odradek.storage.log_config import LONG_MAX, LogConfig
from odradek.storage.producers.producer_state import PRODUCER_ID_EXPIRATION_MS
from odradek.storage.producers.replay import Steps
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.storage.segment.tail import Tails
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)

Known = Callable[[TopicPartition, uuid.UUID | None], bool]
ConfigOf = Callable[[str], LogConfig]


SEGMENTS_PER_FLUSH = 256
"""Each segment has three open files while it is synced; the next round syncs the rest."""
LOGS_PER_STEP = 500
"""How many logs are looked at before other tasks may run."""


class LogManager:
    """`directories` by path; `logs` by partition. Until `claim`, `broker_id` and `cluster_id` are those in the
    directories' meta.properties.
    """

    def __init__(
        self,
        dirs: Iterable[str],
        files: Files,
        clock: Clock,
        *,
        random_source: random.Random | None = None,
        default_config: LogConfig | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        max_tail_bytes: int = 0,
        cache: SegmentCache | None = None,
    ) -> None:
        self._random = random_source if random_source is not None else random.Random()  # nosec B311 # for jitter
        self._registry = registry = LogRegistry(files, dirs, clock, self._random)
        self.files = files
        self.clock = clock
        self.directories = registry.directories
        self.logs = registry.logs
        self.directory_of = registry.directory_of
        self.take_removals = registry.take_removals
        self.default_config = default_config if default_config is not None else LogConfig()
        self.broker_id: int | None = None
        self.cluster_id: str | None = None
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._max_decompressed_bytes = max_decompressed_bytes
        self._cache = (
            cache if cache is not None else SegmentCache(tails=Tails(max_tail_bytes) if max_tail_bytes else None)
        )
        self._folders_to_sync: list[str] = []
        self.checkpoints = LogCheckpoints(registry)
        self.moves = LogMoves(registry, self.checkpoints, lambda: self.default_config.file_delete_delay_ms)
        self.creator = LogCreator(registry, self.checkpoints, self.moves, self._open_new_log)
        self.take_checkpoint = self.checkpoints.take

    # ---- starting

    def open(self) -> None:
        """Locks all directories and reads their owner. Releases all locks before raising OSError, DirectoryLocked or
        MetaPropertiesError.
        """
        try:
            for directory in self.directories.values():
                directory.open()
                if directory.meta is not None:
                    self.broker_id = directory.meta.broker_id if self.broker_id is None else self.broker_id
                    self.cluster_id = directory.meta.cluster_id if self.cluster_id is None else self.cluster_id
        except BaseException:
            self.release()
            raise

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Assigns the directories to this broker. Raises MetaPropertiesError if one belongs to another broker or
        cluster.
        """
        for directory in self.directories.values():
            if directory.meta is not None:
                check_meta_properties(directory.path, directory.meta, broker_id, cluster_id)
        for directory in self.directories.values():
            if directory.meta is None or directory.meta.broker_id is None or directory.meta.cluster_id is None:
                write_meta_properties(self.files, directory.path, broker_id, cluster_id)
        self.broker_id, self.cluster_id = broker_id, cluster_id

    def set_producer_id_expiration(self, expiration_ms: int) -> None:
        """Sets how long idle producers are kept, for all current and future logs."""
        self._producer_id_expiration_ms = expiration_ms
        for log in self.logs.values():
            log.producers.state.expiration_ms = expiration_ms

    def load(self, config_of: ConfigOf | None = None, known: Known | None = None) -> None:
        """Runs all `load_steps` and the syncs."""
        for _ in self.load_steps(config_of, known):
            pass
        for sync in self.take_load_syncs():
            sync()

    def load_steps(self, config_of: ConfigOf | None = None, known: Known | None = None) -> Iterator[None]:
        """Opens the logs of all partition folders, and recovers them after a crash. Raises OSError. If the disk is too
        full to open a log, this is logged and the log stays closed until the next start, which recovers its directory.

        `config_of(topic)` returns a topic's settings; `known(partition, topic id)` returns whether the metadata store
        has the partition.
        """
        for directory in self.directories.values():
            directory.begin_load()
            for path in directory.deleted():
                self._registry.remove_later(path, self.default_config.file_delete_delay_ms)
        self.moves.put_in_order(list(self.directories.values()))
        for directory in self.directories.values():
            partitions = directory.partitions()
            if partitions and not directory.clean:
                _log.info("recovering directory", directory=directory.path, partitions=len(partitions))
            for topic_partition in partitions:
                topic_id = self._topic_id(directory, topic_partition)
                if self._is_ours(directory, topic_partition, topic_id, known):
                    config = self.default_config if config_of is None else config_of(topic_partition.topic)
                    try:
                        yield from self._open_steps(directory, topic_partition, config, topic_id)
                    except OSError as error:
                        if not is_full(error):
                            raise
                        _log.error("log not opened", partition=str(topic_partition), reason=str(error))
                        directory.unopened[topic_partition] = str(error)

    def take_load_syncs(self) -> list[Callable[[], None]]:
        """Returns the syncs to run after `load_steps`, before the first append, in any thread. They raise OSError."""
        folders, self._folders_to_sync = self._folders_to_sync, []
        return [partial(self.files.sync_directory, folder) for folder in folders]

    def _topic_id(self, directory: LogDirectory, topic_partition: TopicPartition) -> uuid.UUID | None:
        """Returns the id in a partition's folder, None if there is none."""
        try:
            return read_partition_metadata(self.files, f"{directory.path}/{topic_partition}/{PARTITION_METADATA}")
        except CorruptCheckpoint:  # opening the log logs the error; only the name identifies the partition
            return None

    def _is_ours(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        known: Known | None,
    ) -> bool:
        reason = None
        if topic_partition in self.logs:
            reason = f"the partition is in {self.logs[topic_partition].folder.path} too"
        elif known is not None and not known(topic_partition, topic_id):
            reason = "the partition is unknown, or belonged to another topic of the same name"
        if reason is None:
            return True
        _log.warning("folder ignored", directory=directory.path, folder=str(topic_partition), reason=reason)
        return False

    def _open_steps(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        config: LogConfig,
        topic_id: uuid.UUID | None,
    ) -> Steps[None]:
        log = yield from open_log_steps(
            self.files,
            f"{directory.path}/{topic_partition}",
            topic_partition,
            config,
            self.clock,
            clean=directory.clean and topic_partition not in self.moves.completed,
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
            high_watermark=directory.high_watermarks.get(topic_partition, 0),
            cleaned_offset=directory.cleaner_offsets.get(topic_partition, 0),
            contiguous=directory.recovery_points_known,
            random_source=self._random,
            cache=self._cache,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            max_decompressed_bytes=self._max_decompressed_bytes,
            folders_to_sync=self._folders_to_sync,
            topic_id=topic_id,
        )
        log.state.cleaned_to(directory.cleaner_offsets.get(topic_partition))
        self.logs[topic_partition] = log

    # ---- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def get_or_create(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> Log:
        """Returns the partition's log. If there is none, creates it in the directory with the fewest partitions.

        Raises INCONSISTENT_TOPIC_ID if it belongs to another topic of the same name, KAFKA_STORAGE_ERROR if it cannot
        be created.
        """
        return self.creator.make(topic_partition, topic_id, config)

    def _open_new_log(self, folder: str, topic_partition: TopicPartition, config: LogConfig) -> Log:
        return open_log(
            self.files,
            folder,
            topic_partition,
            config,
            self.clock,
            random_source=self._random,
            cache=self._cache,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            max_decompressed_bytes=self._max_decompressed_bytes,
        )

    def truncation_steps(self, targets: Mapping[TopicPartition, Target]) -> BulkSteps:
        """Truncates the logs of these partitions together; see truncation and bulk_truncation. Each step yields a
        function to run in any thread before the next step, or None. The generator returns, by partition, None or the
        error: KAFKA_STORAGE_ERROR, or UNKNOWN_TOPIC_OR_PARTITION if there is no log.

        Until it ends, nothing may be appended to these logs, and no other truncation of them may begin. Close it to
        give up; a log is then truncated completely, in part, or not at all.
        """
        return BulkTruncation(self.logs, self.checkpoints, targets).steps()

    def delete(self, topic_partition: TopicPartition, *, sync: bool = True) -> list[str]:
        """Renames the partition's folder (`-delete`) and drops the log; the folder is removed after
        file.delete.delay.ms. The same with a log that could not be opened, and with one that could not be created.
        Returns the log directories that have changed. Without `sync` the caller must sync them.

        Raises KAFKA_STORAGE_ERROR if the folder cannot be renamed. Does nothing if the partition has no log.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            changed = self._delete_unused(topic_partition)
        else:
            changed = [self.directory_of(log)]
            target = self._registry.deleted_path(changed[0], topic_partition)
            self._drop(log, target)
            self._registry.remove_later(target, log.config.file_delete_delay_ms)
        if sync:
            for directory in changed:
                self._sync_directory(directory)
        return changed

    def _delete_unused(self, topic_partition: TopicPartition) -> list[str]:
        """Deletes the folders of the partition that no log uses, but not those of another topic."""
        changed = []
        for path, directory in self.directories.items():
            if topic_partition in directory.unopened or topic_partition in directory.unfinished:
                folder = f"{path}/{topic_partition}"
                try:
                    self.moves.remove_futures(topic_partition)
                    self._registry.discard(folder, topic_partition, self.default_config.file_delete_delay_ms)
                except OSError as error:
                    raise _not_deleted(topic_partition, error) from error
                directory.unopened.pop(topic_partition, None)
                directory.unfinished.discard(topic_partition)
                changed.append(path)
        return changed

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Renames the partition's folder (`-stray`), which stays for the operator, and drops the log. The caller must
        sync the log directory. Raises KAFKA_STORAGE_ERROR if the folder cannot be renamed.
        """
        log = self.logs[topic_partition]
        folder, target = log.folder.path, self._registry.stray_path(self.directory_of(log), topic_partition)
        self._drop(log, target)
        _log.warning("log of an earlier topic moved aside", folder=folder, now=target)

    def _drop(self, log: Log, target: str) -> None:
        """Renames the log's folder and forgets the log. Raises KAFKA_STORAGE_ERROR."""
        topic_partition = log.topic_partition
        try:
            self.moves.remove_futures(topic_partition)
            self.files.rename(log.folder.path, target)
        except OSError as error:
            raise _not_deleted(topic_partition, error) from error
        del self.logs[topic_partition]
        log.abandon(target)

    def _sync_directory(self, directory: str) -> None:
        try:
            self.files.sync_directory(directory)
        except OSError as error:
            _log.error("directory not synced", directory=directory, reason=str(error))

    # ---- periodic work

    def take_flush_jobs(self) -> Iterator[tuple[Log, FlushJob] | None]:
        """Yields the jobs that sync rolled segments, apply flush.ms and write new leader epochs, and None where other
        tasks may run. Run each job, then call `log.finish_flush(job)` on the loop, before taking the next: jobs keep
        files open.
        """
        now_ms = self.clock.now_ms()
        for number, log in enumerate(list(self.logs.values()), 1):
            if number % LOGS_PER_STEP == 0:
                yield None
            if self.logs.get(log.topic_partition) is not log:
                continue
            due = log.config.flush_ms < LONG_MAX and now_ms - log.flusher.last_flush_ms >= log.config.flush_ms
            if len(log.segments.unsynced) > SEGMENTS_PER_FLUSH:
                end_offset = log.segments.unsynced[SEGMENTS_PER_FLUSH].base_offset
            elif due and log.state.recovery_point < log.state.log_end_offset:
                end_offset = log.state.log_end_offset
            elif log.segments.unsynced:
                end_offset = log.segments.active.base_offset
            elif not log.leader_epochs.is_written and log.folder.failure is None:
                end_offset = log.state.recovery_point
            else:
                continue
            try:
                job = log.begin_flush(end_offset)
            except ProtocolError:  # logged already; the next round tries again
                continue
            if job is not None:
                yield log, job

    def idle_until_ms(self) -> float:
        """Returns when there will be flush jobs or removals to take, if nothing happens before; 0 for now."""
        until_ms = self._registry.next_removal_ms()
        for log in self.logs.values():
            if log.segments.unsynced or not log.leader_epochs.is_written:
                return 0
            if log.config.flush_ms < LONG_MAX and log.state.recovery_point < log.state.log_end_offset:
                until_ms = min(until_ms, log.flusher.last_flush_ms + log.config.flush_ms)
        return until_ms

    def expire_producers(self) -> int:
        """Drops producers that have been idle for producer.id.expiration.ms; returns their number."""
        now_ms = self.clock.wall_ms()
        return sum(log.producers.state.remove_expired(now_ms) for log in self.logs.values())

    # ---- stopping

    def shutdown(self) -> dict[str, str]:
        """Runs all `shutdown_steps`."""
        return one_after_the_other(self.shutdown_steps())

    def shutdown_steps(self) -> Syncs[dict[str, str]]:
        """Flushes and closes all logs, writes the checkpoints, marks the shutdown as clean where everything succeeded,
        releases the locks. Yields groups of functions that wait for the disk.

        Returns, by path, why a directory's shutdown was not clean: the next start recovers its logs.
        """
        removal = self.take_removals(everything=False)
        if removal is not None:
            removal.run()
        try:
            unclosed = yield from close_all(list(self.logs.values()))
            failed = {self.directory_of(log): reason for log, reason in unclosed}
            for path, directory in self.directories.items():
                reason = self._end(directory, failed.get(path) or next(iter(directory.unopened.values()), None))
                if reason is not None:
                    failed[path] = reason
                    _log.error("shutdown not clean", directory=path, reason=reason)
            return failed
        finally:
            self.logs.clear()
            self.release()

    def _end(self, directory: LogDirectory, failure: str | None) -> str | None:
        """Writes a directory's checkpoints, and the clean-shutdown marker if no log failed to close. Returns why there
        is no marker, or None.
        """
        try:
            self.checkpoints.write_one(directory.path, RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET)
            if failure is None:
                directory.mark_clean()
        except OSError as error:
            return str(error)
        return failure

    def release(self) -> None:
        """Releases the locks and nothing else, like a crash."""
        for directory in self.directories.values():
            directory.release()


def _not_deleted(topic_partition: TopicPartition, error: OSError) -> ProtocolError:
    _log.error("log not deleted", partition=str(topic_partition), reason=str(error))
    return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} cannot be deleted: {error}")

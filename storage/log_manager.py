"""All logs of a broker, in all directories of log.dirs (Kafka's LogManager).

Life: `open` (locks, whose directories they are), `claim` (they are this broker's of this cluster), `load`, then
`get_or_create`, `delete` and the periodic work, then `shutdown`. Nothing here starts a thread or a timer. What
takes long is handed out:

* `load_steps`: an iterator that does a bounded piece of work per step, then `take_load_syncs`;
* `take_flush_jobs`, `take_removals`: objects with a `run` for any thread.

The folder of a partition that is not `known` is logged and left alone.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import MAX_DECOMPRESSED_BYTES
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    PARTITION_METADATA,
    RECOVERY_POINT,
    CorruptCheckpoint,
    read_partition_metadata,
)
from odradek.storage.files import Files, is_full
from odradek.storage.flushing import FlushJob
from odradek.storage.log import Log
from odradek.storage.log_checkpoints import LogCheckpoints
from odradek.storage.log_config import LONG_MAX, LogConfig
from odradek.storage.log_creation import LogCreator
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_moves import LogMoves
from odradek.storage.log_registry import LogRegistry
from odradek.storage.meta_properties import (
    check_meta_properties,
    generated_broker_id,
    write_meta_properties,
)
from odradek.storage.producer_state import PRODUCER_ID_EXPIRATION_MS
from odradek.storage.recovery import Steps, open_log, open_log_steps
from odradek.storage.segment_cache import SegmentCache
from odradek.storage.shutdown import RunAll, close_all, one_after_the_other
from odradek.storage.tail import Tails
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)

Known = Callable[[TopicPartition, uuid.UUID | None], bool]
ConfigOf = Callable[[str], LogConfig]


SEGMENTS_PER_FLUSH = 256
"""Each is three open files while it is synced; the next round takes the next ones."""


class LogManager:
    """`directories` by path; `logs` by partition. `broker_id` and `cluster_id` are what the directories say, until
    `claim`.
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
        self._random = random_source if random_source is not None else random.Random()
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
        """Locks all directories and reads whose they are. Raises OSError, DirectoryLocked, MetaPropertiesError, and
        then holds none.
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

    def claim(self, broker_id: int, cluster_id: str) -> int:
        """Makes the directories this broker's, or raises MetaPropertiesError because one is not; returns the
        broker's id.

        -1 as `broker_id` takes the one that the directories name, else a new one above 1000.
        """
        if broker_id < 0:
            broker_id = self.broker_id if self.broker_id is not None else generated_broker_id(self._random)
        for directory in self.directories.values():
            if directory.meta is not None:
                check_meta_properties(directory.path, directory.meta, broker_id, cluster_id)
        for directory in self.directories.values():
            if directory.meta is None or directory.meta.broker_id is None or directory.meta.cluster_id is None:
                write_meta_properties(self.files, directory.path, broker_id, cluster_id)
        self.broker_id, self.cluster_id = broker_id, cluster_id
        return broker_id

    def set_producer_id_expiration(self, expiration_ms: int) -> None:
        """How long a silent producer is remembered from now on, in all logs there are and will be."""
        self._producer_id_expiration_ms = expiration_ms
        for log in self.logs.values():
            log.producer_state.expiration_ms = expiration_ms

    def load(self, config_of: ConfigOf | None = None, known: Known | None = None) -> None:
        """All of `load_steps` at once, and the syncs."""
        for _ in self.load_steps(config_of, known):
            pass
        for sync in self.take_load_syncs():
            sync()

    def load_steps(self, config_of: ConfigOf | None = None, known: Known | None = None) -> Iterator[None]:
        """Opens the logs of all partition folders, recovering them after a crash. Raises OSError. A log that does not
        fit on a full disk is reported and stays closed until the next start, which recovers its directory.

        `config_of(topic)` gives a topic's settings; `known(partition, topic id)` whether it is one of the store's.
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
                if self._is_ours(directory, topic_partition, known):
                    config = self.default_config if config_of is None else config_of(topic_partition.topic)
                    try:
                        yield from self._open_steps(directory, topic_partition, config)
                    except OSError as error:
                        if not is_full(error):
                            raise
                        _log.error("log not opened", partition=str(topic_partition), reason=str(error))
                        directory.unopened[topic_partition] = str(error)

    def take_load_syncs(self) -> list[Callable[[], None]]:
        """What has to be synced after `load_steps`, before the first append: each in any thread. They raise OSError."""
        folders, self._folders_to_sync = self._folders_to_sync, []
        return [partial(self.files.sync_directory, folder) for folder in folders]

    def _is_ours(self, directory: LogDirectory, topic_partition: TopicPartition, known: Known | None) -> bool:
        folder = f"{directory.path}/{topic_partition}"
        try:
            topic_id = read_partition_metadata(self.files, f"{folder}/{PARTITION_METADATA}")
        except CorruptCheckpoint:  # the log says so; its name alone tells whose it is
            topic_id = None
        reason = None
        if topic_partition in self.logs:
            reason = f"the partition is in {self.logs[topic_partition].directory} too"
        elif known is not None and not known(topic_partition, topic_id):
            reason = "the partition is unknown, or was one of another topic of that name"
        if reason is None:
            return True
        _log.warning("folder ignored", directory=directory.path, folder=str(topic_partition), reason=reason)
        return False

    def _open_steps(self, directory: LogDirectory, topic_partition: TopicPartition, config: LogConfig) -> Steps[None]:
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
            contiguous=directory.recovery_points_known,
            random_source=self._random,
            cache=self._cache,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            max_decompressed_bytes=self._max_decompressed_bytes,
            folders_to_sync=self._folders_to_sync,
        )
        log.state.cleaned_to(directory.cleaner_offsets.get(topic_partition))
        self.logs[topic_partition] = log

    # ---- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def get_or_create(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> Log:
        """The partition's log, made in the directory with the fewest partitions if there is none.

        Raises INCONSISTENT_TOPIC_ID when it belongs to another topic of that name, KAFKA_STORAGE_ERROR when it
        cannot be made.
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

    def truncate(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Cuts the partition's log at `offset`; False when it ends before. Raises KAFKA_STORAGE_ERROR.

        The recovery point that is checkpointed goes back first: other batches will follow at those offsets.
        """
        log = self.logs[topic_partition]
        if offset < log.recovery_point:
            cleaned_offset = log.cleaned_offset
            log.state.withdrawn_from(offset)
            try:
                self.checkpoints.write(RECOVERY_POINT)
                if log.cleaned_offset != cleaned_offset:
                    self.checkpoints.write(CLEANER_OFFSET)
            except OSError as error:
                raise ProtocolError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} cannot be cut: {error}"
                ) from error
        return log.truncate_to(offset)

    def delete(self, topic_partition: TopicPartition, *, sync: bool = True) -> None:
        """Renames the partition's folder (`-delete`) and forgets the log; the folder is removed after
        file.delete.delay.ms. Without `sync` the log directory is the caller's to sync.

        Raises KAFKA_STORAGE_ERROR when it cannot be renamed. A partition without a log is deleted already.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            return
        self.moves.abandon(topic_partition)
        directory = self.directory_of(log)
        target = self._registry.deleted_path(directory, topic_partition)
        try:
            self.files.rename(log.directory, target)
        except OSError as error:
            _log.error("log not deleted", partition=str(topic_partition), reason=str(error))
            raise ProtocolError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} cannot be deleted: {error}"
            ) from error
        del self.logs[topic_partition]
        log.close_files()
        self._registry.remove_later(target, log.config.file_delete_delay_ms)
        if sync:
            self._sync_directory(directory)

    def _sync_directory(self, directory: str) -> None:
        try:
            self.files.sync_directory(directory)
        except OSError as error:
            _log.error("directory not synced", directory=directory, reason=str(error))

    # ---- periodic work

    def take_flush_jobs(self) -> Iterator[tuple[Log, FlushJob]]:
        """What rolled segments and flush.ms ask to be synced now. Run each job, then `log.finish_flush(job)` on the
        loop, before the next is taken: jobs hold files open.
        """
        now_ms = self.clock.now_ms()
        for log in list(self.logs.values()):
            if self.logs.get(log.topic_partition) is not log:
                continue
            due = log.config.flush_ms < LONG_MAX and now_ms - log.last_flush_ms >= log.config.flush_ms
            if len(log.unsynced_segments) > SEGMENTS_PER_FLUSH:
                end_offset = log.unsynced_segments[SEGMENTS_PER_FLUSH].base_offset
            elif due and log.recovery_point < log.log_end_offset:
                end_offset = log.log_end_offset
            elif log.unsynced_segments:
                end_offset = log.active_segment.base_offset
            else:
                continue
            try:
                job = log.begin_flush(end_offset)
            except ProtocolError:  # logged already; the next round tries again
                continue
            if job is not None:
                yield log, job

    def expire_producers(self) -> int:
        """Forgets producers that have been silent for producer.id.expiration.ms; returns how many."""
        now_ms = self.clock.wall_ms()
        return sum(log.producer_state.remove_expired(now_ms) for log in self.logs.values())

    # ---- stopping

    def shutdown(self, run_all: RunAll = one_after_the_other) -> dict[str, str]:
        """Flushes and closes all logs, writes the checkpoints, marks the shutdown as clean where all went well,
        unlocks. `run_all` does what waits for the disk, in threads perhaps.

        Returns, by path, why a directory's shutdown was not clean: the next start recovers its logs.
        """
        removal = self.take_removals(everything=False)
        if removal is not None:
            removal.run()
        try:
            failed = {self.directory_of(log): reason for log, reason in close_all(list(self.logs.values()), run_all)}
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
        """Writes a directory's checkpoints, and the mark if no log failed to close; why there is no mark."""
        try:
            self.checkpoints.write_one(directory.path, RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET)
            if failure is None:
                directory.mark_clean()
        except OSError as error:
            return str(error)
        return failure

    def release(self) -> None:
        """Gives the locks back and nothing else: what a crash would do."""
        for directory in self.directories.values():
            directory.release()

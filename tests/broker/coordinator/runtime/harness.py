"""A coordinator runtime over real logs; the test advances time, tasks and threads by hand."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.broker.coordinator.internal_topics import group_log_settings
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.broker.coordinator.runtime.shard import Act, Decision
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.control_records import ControlType
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import build_end_transaction_marker
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.files import Buffer, File
from tests.broker.replica.harness import ReplicaHarness, ThreadCall, UnsyncedFiles
from tests.table_settings import DEFAULTS

TOPIC = "__consumer_offsets"
PARTITION = TopicPartition(TOPIC, 0)


class ManualTasks:
    """Background tasks: each `turn` runs one step of every task; thread calls complete in the next turn."""

    def __init__(self) -> None:
        self._running: list[tuple[Coroutine[Any, Any, Any], ThreadCall | None]] = []
        self.thread_calls = 0

    def run_in_thread(self, function: Callable[..., Any], /, *arguments: Any) -> ThreadCall:
        return ThreadCall(function, arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._running.append((coroutine, None))

    def turn(self) -> None:
        running, self._running = self._running, []
        for coroutine, call in running:
            try:
                self._running.append((coroutine, self._step(coroutine, call)))
            except StopIteration:
                pass

    def run(self) -> int:
        """Runs turns until no task is left and returns the number of turns."""
        turns = 0
        while self._running:
            self.turn()
            turns += 1
        return turns

    def close(self) -> None:
        for coroutine, _ in self._running:
            coroutine.close()

    def _step(self, coroutine: Coroutine[Any, Any, Any], call: ThreadCall | None) -> Any:
        if call is None:
            return coroutine.send(None)
        self.thread_calls += 1
        try:
            result = call.function(*call.arguments)
        except Exception as error:
            return coroutine.throw(error)
        return coroutine.send(result)


class WatchedFile:
    """A file on a `Disk`."""

    def __init__(self, file: File, disk: Disk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        if self._disk.fault is not None:
            raise self._disk.fault
        if self._disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.path)
        return self._file.write(parts, position)

    def read(self, position: int, length: int) -> Buffer:
        if os.path.basename(self._file.path) in self._disk.unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._file.path)
        return self._file.read(position, length)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        self._disk.reads.append(length)
        return None if self._disk.cold else self.read(position, length)

    def duplicate(self) -> File:
        return WatchedFile(self._file.duplicate(), self._disk)


class Disk(UnsyncedFiles):
    """Real files on a disk that can be full, cold (nothing in the page cache) or unreadable (by file name).

    If `fault` is set, every write raises it: an error that is not a disk error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.fault: Exception | None = None
        self.cold = False
        self.unreadable: set[str] = set()
        self.reads: list[int] = []

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        file = super().open(path, create=create, exclusive=exclusive)
        return WatchedFile(file, self)


class RecordingShard:
    """A shard that records its calls. Keys that begin with b"bad" do not decode."""

    def __init__(self, partition: int, leader_epoch: int, act: Act) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.act = act
        self.values: dict[bytes, bytes] = {}
        self.pending: dict[int, list[CoordinatorRecord]] = {}
        self.events: list[Any] = []
        self.offsets: list[int] = []

    def replay(
        self, record: CoordinatorRecord, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        if record.key.startswith(b"bad"):
            raise ValueError(f"{record.key!r} is bad")
        self.offsets.append(offset)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(record)
        else:
            self._put(record)

    def _put(self, record: CoordinatorRecord) -> None:
        if record.value is None:
            self.values.pop(record.key, None)
        else:
            self.values[record.key] = record.value

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.events.append(("ended", producer_id, producer_epoch, committed))
        for record in self.pending.pop(producer_id, []):
            if committed:
                self._put(record)

    def loaded(self) -> None:
        self.events.append("loaded")

    def unload(self) -> None:
        self.events.append("unloaded")


class Outcome:
    """Records each outcome that a decision is completed with."""

    def __init__(self) -> None:
        self.results: list[ProtocolError | None] = []

    def __call__(self, error: ProtocolError | None) -> None:
        self.results.append(error)

    @property
    def is_done(self) -> bool:
        return self.results == [None]

    @property
    def error(self) -> Any:
        (error,) = self.results
        return error


class RuntimeHarness(ReplicaHarness):
    """Provides the `runtime` of one internal topic. Its shards are `RecordingShard`."""

    def __init__(self, root: Path, partitions: int = 1, **settings: Any) -> None:
        super().__init__(root)
        self.disk = Disk()
        self.logs.files = self.disk
        self.tasks = ManualTasks()
        self.partition_count = partitions
        self.settings = group_log_settings(DEFAULTS)._replace(topic=TOPIC, **settings)
        self.made: list[RecordingShard] = []
        self.runtime = self.new_runtime()

    def new_runtime(self, *, may_load: bool = True) -> CoordinatorRuntime:
        runtime = CoordinatorRuntime(
            self.settings,
            new_shard=self._new_shard,
            topics={},
            planned_count=lambda: self.partition_count,
            partitions=self.manager.partitions,
            appends=self.manager.appends,
            leaderships=self.manager.leaderships,
            clock=self.clock,
            background=self.tasks,
        )
        if may_load:
            runtime.begin_loading()
        return runtime

    def _new_shard(self, partition: int, leader_epoch: int, act: Act) -> RecordingShard:
        self.made.append(RecordingShard(partition, leader_epoch, act))
        return self.made[-1]

    @property
    def shard(self) -> RecordingShard:
        """The newest shard."""
        return self.made[-1]

    def lead(self, key: TopicPartition = PARTITION, **arguments: Any) -> Partition:
        return super().lead(key, **{"cleanup_policy": "compact", **arguments})

    def write(self, *records: tuple[bytes, bytes | None], key: TopicPartition = PARTITION, **options: Any) -> Outcome:
        """Appends a batch as a decision of the partition's shard."""
        outcome = Outcome()
        shard = self.runtime.shard_of(key.partition)
        assert isinstance(shard, RecordingShard)
        shard.act(Decision([CoordinatorRecord(*record) for record in records], outcome, **options))
        self.turn()
        return outcome

    def mark(self, producer_id: int, epoch: int = 0, *, committed: bool = True) -> None:
        """Appends a transaction marker to the partition, as the replica manager does."""
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        timestamp = self.clock.wall_ms()
        marker = build_end_transaction_marker(
            kind, timestamp=timestamp, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0
        )
        result = self.manager.appends.append_as_coordinator(PARTITION, marker)
        assert result.error == 0
        self.runtime.transaction_ended(0, producer_id, epoch, committed)

    def load_again(self) -> RecordingShard:
        """Loads the logs with a new runtime and returns its shard."""
        self.runtime.stop()
        self.runtime = self.new_runtime()
        self.runtime.start()
        self.tasks.run()
        return self.shard

    def log_file(self, base_offset: int = 0) -> Path:
        return Path(self.manager.partitions.find(PARTITION).log.folder.path) / f"{base_offset:020d}.log"


@contextmanager
def runtime_harness(root: Path, **arguments: Any) -> Iterator[RuntimeHarness]:
    """Yields a started harness. At the end its logs are closed as a killed broker leaves them."""
    harness = RuntimeHarness(root, **arguments)
    harness.runtime.start()
    try:
        yield harness
    finally:
        harness.tasks.close()
        harness.logs.close()


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Overwrites bytes of a file that a log has open."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)

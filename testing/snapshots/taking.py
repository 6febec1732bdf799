"""Takes a snapshot of a running broker, also under load.

The instant is one turn of the event loop: it notes where every log ends, and what the metadata store has. That much is
consistent, as it is when the broker's process is killed; what is answered before is in the snapshot, what is asked for
later is not. The files are written afterwards, in steps and threads, while the broker goes on (storage/log/frozen.py).
If a log loses files meanwhile, everything begins anew, MOST_ATTEMPTS times. Nothing is synced: a snapshot that a power
cut damages is found by its checksums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from odradek.broker.background.stepwise import Pace, in_steps, others_between
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.frozen_store import FrozenStore
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.server import Broker, BrokerState
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_CONTENT,
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    write_offsets,
)
from odradek.storage.directories.meta_properties import write_meta_properties
from odradek.storage.linked_files import LinkingFiles
from odradek.storage.log.frozen import FrozenLog, LogHasChanged, prepare, write
from odradek.testing.snapshots.manifest import NAME, Manifest, SnapshotError, SnapshotFile, listed
from odradek.testing.snapshots.snapshot import DATA, Snapshot, new_directory, remove_directory

MOST_ATTEMPTS = 5
ITEMS_OF_A_LOG = 20
"""How many items of a step a log takes."""

_FILES = LinkingFiles()


async def take_snapshot(broker: Broker, path: str | Path | None) -> Snapshot:
    """Returns a snapshot in a new directory, by default a temporary one. Raises SnapshotError."""
    _check(broker)
    return await written(path, partial(_write, broker), lambda: broker.state == BrokerState.RUNNING)


async def written(
    path: str | Path | None, write_data: Callable[[Path], Awaitable[Manifest]], is_running: Callable[[], bool]
) -> Snapshot:
    """Makes the directory of a snapshot; `write_data` writes the data into it, and is called again if a log changes
    meanwhile. Raises SnapshotError.
    """
    directory = new_directory(path)
    try:
        for _ in range(MOST_ATTEMPTS):
            try:
                manifest = await write_data(directory / DATA)
            except LogHasChanged as change:
                changed = change
                _FILES.remove_tree(str(directory / DATA))
            else:
                _FILES.replace_file(str(directory / NAME), manifest.encoded(), sync=False)
                return Snapshot(directory, manifest, is_temporary=path is None)
    except BaseException as error:
        remove_directory(directory)
        if isinstance(error, SnapshotError):
            raise
        if isinstance(error, Exception) and not is_running():
            raise SnapshotError("the broker was stopped while the snapshot was taken") from error
        if isinstance(error, OSError | MetadataStoreError):
            raise SnapshotError(f"the snapshot cannot be written: {error}") from error
        raise
    remove_directory(directory)
    raise SnapshotError(
        f"{changed} lost segments during each of {MOST_ATTEMPTS} attempts: take the snapshot while nothing is deleted, "
        "compacted or truncated"
    )


def _check(broker: Broker) -> None:
    if broker.state != BrokerState.RUNNING:
        raise SnapshotError(f"the broker is not running ({broker.state.name}): start it, then take the snapshot")
    if not isinstance(broker.metadata_store, EmbeddedMetadataStore):
        raise SnapshotError("a broker of a cluster has no snapshot of its own: take one of the whole cluster")


async def _write(broker: Broker, data: Path) -> Manifest:
    store = broker.metadata_store
    assert isinstance(store, EmbeddedMetadataStore)
    await prepare_logs(broker)
    taken_ms, logs, frozen = broker.clock.wall_ms(), frozen_logs(broker), store.freeze()
    await write_store(frozen, data)
    await write_directory(broker, logs, data)
    files = await list_files(broker, data)
    return Manifest(taken_ms, [broker.broker_id], broker.metadata.cluster_id, files)


async def prepare_logs(broker: Broker) -> None:
    """Comes before the instant, and reads what that needs."""
    async for log in others_between(list(broker.log_manager.logs.values()), ITEMS_OF_A_LOG):
        prepare(log)


def frozen_logs(broker: Broker) -> list[FrozenLog]:
    """Returns the logs of a broker at the instant. Raises SnapshotError if a disk has failed."""
    logs = list(broker.log_manager.logs.values())
    for log in logs:
        if log.folder.failure is not None:
            raise SnapshotError(f"the disk of {log.topic_partition} has failed: {log.folder.failure}")
    return [FrozenLog(log) for log in logs]


async def write_store(store: FrozenStore, directory: Path) -> None:
    """Writes the files of a metadata store."""
    _FILES.make_directories(str(directory))
    for name, content in (await in_steps(store.steps())).items():
        write(_FILES, f"{directory}/{name}", content)


async def write_directory(broker: Broker, logs: list[FrozenLog], directory: Path) -> None:
    """Writes a log directory with these logs of the broker."""
    await _write_logs(broker, logs, str(directory))
    write_meta_properties(_FILES, str(directory), broker.broker_id, broker.metadata.cluster_id, sync=False)
    _write_checkpoints(logs, str(directory))


async def list_files(broker: Broker, data: Path) -> list[SnapshotFile]:
    """Returns the entries of all files of a snapshot, after reading them in a thread of the broker."""
    return await broker.background.run_in_thread(
        lambda: [listed(_FILES, str(data), path) for path in _paths(str(data))]
    )


async def _write_logs(broker: Broker, logs: list[FrozenLog], data: str) -> None:
    _FILES.make_directories(data)
    pace = Pace()
    for log in logs:
        for work in log.steps(_FILES, f"{data}/{log.topic_partition}"):
            if work is not None:
                await broker.background.run_in_thread(work)
            elif pace.step_ends(ITEMS_OF_A_LOG):
                await asyncio.sleep(0)


def _write_checkpoints(logs: list[FrozenLog], data: str) -> None:
    """As a clean shutdown leaves them."""
    checkpoints: dict[str, dict[TopicPartition, int | None]] = {
        RECOVERY_POINT: {log.topic_partition: log.log_end_offset for log in logs},
        HIGH_WATERMARK: {log.topic_partition: log.high_watermark for log in logs},
        LOG_START_OFFSET: {log.topic_partition: log.log_start_offset or None for log in logs},
        CLEANER_OFFSET: {log.topic_partition: log.cleaned_offset for log in logs},
    }
    for name, offsets in checkpoints.items():
        known = {partition: offset for partition, offset in offsets.items() if offset is not None}
        write_offsets(_FILES, f"{data}/{name}", known, sync=False)
    write(_FILES, f"{data}/{CLEAN_SHUTDOWN}", CLEAN_SHUTDOWN_CONTENT)


def _paths(directory: str, prefix: str = "") -> Iterator[str]:
    """Yields the paths of all files below a directory, relative to it."""
    for name in _FILES.list_directory(directory):
        if _FILES.is_directory(f"{directory}/{name}"):
            yield from _paths(f"{directory}/{name}", f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}"

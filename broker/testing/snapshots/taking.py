"""Takes a snapshot of a running broker, also under load.

The instant is one turn of the event loop: it notes where every log ends, and what the metadata store has. That much is
consistent, as it is when the broker's process is killed; what is answered before is in the snapshot, what is asked for
later is not. The files are written afterwards, in steps and threads, while the broker goes on (storage/log/frozen.py).
If a log loses files meanwhile, everything begins anew, MOST_ATTEMPTS times. Nothing is synced: a snapshot that a power
cut damages is found by its checksums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, in_steps, others_between
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.frozen_store import FrozenStore
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.server import Broker, BrokerState
from odradek.broker.testing.snapshots.manifest import NAME, Manifest, SnapshotError, listed
from odradek.broker.testing.snapshots.snapshot import DATA, Snapshot, new_directory
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

MOST_ATTEMPTS = 5
ITEMS_OF_A_LOG = 20
"""How many items of a step a log takes."""

_FILES = LinkingFiles()


class Instant(NamedTuple):
    """What a broker has at one instant."""

    taken_ms: int
    logs: list[FrozenLog]
    store: FrozenStore


async def take_snapshot(broker: Broker, path: str | Path | None) -> Snapshot:
    """Returns a snapshot in a new directory, by default a temporary one. Raises SnapshotError."""
    _check(broker)
    directory = new_directory(path)
    try:
        for _ in range(MOST_ATTEMPTS):
            try:
                manifest = await _write(broker, directory / DATA)
            except LogHasChanged as change:
                changed = change
                _FILES.remove_tree(str(directory / DATA))
            else:
                _FILES.replace_file(str(directory / NAME), manifest.encoded(), sync=False)
                return Snapshot(directory, manifest, is_temporary=path is None)
    except BaseException as error:
        _FILES.remove_tree(str(directory))
        if isinstance(error, Exception) and broker.state != BrokerState.RUNNING:
            raise SnapshotError("the broker was stopped while the snapshot was taken") from error
        if isinstance(error, OSError | MetadataStoreError):
            raise SnapshotError(f"the snapshot cannot be written: {error}") from error
        raise
    _FILES.remove_tree(str(directory))
    raise SnapshotError(
        f"{changed} lost segments during each of {MOST_ATTEMPTS} attempts: take the snapshot while nothing is deleted, "
        "compacted or truncated"
    )


def _check(broker: Broker) -> None:
    if broker.state != BrokerState.RUNNING:
        raise SnapshotError(f"the broker is not running ({broker.state.name}): start it, then take the snapshot")
    if not isinstance(broker.metadata_store, EmbeddedMetadataStore):
        raise SnapshotError("a broker of a cluster has no snapshots: its metadata are elsewhere")


async def _write(broker: Broker, data: Path) -> Manifest:
    async for log in others_between(list(broker.log_manager.logs.values()), ITEMS_OF_A_LOG):
        prepare(log)
    instant = _instant(broker)
    await _write_logs(broker, instant, str(data))
    for name, content in (await in_steps(instant.store.steps())).items():
        write(_FILES, f"{data}/{name}", content)
    cluster_id = broker.metadata.cluster_id
    write_meta_properties(_FILES, str(data), broker.broker_id, cluster_id, sync=False)
    _write_checkpoints(instant.logs, str(data))
    files = await broker.background.run_in_thread(lambda: [listed(_FILES, str(data), path) for path in _paths(data)])
    return Manifest(instant.taken_ms, broker.broker_id, cluster_id, files)


def _instant(broker: Broker) -> Instant:
    store = broker.metadata_store
    assert isinstance(store, EmbeddedMetadataStore)
    logs = list(broker.log_manager.logs.values())
    for log in logs:
        if log.folder.failure is not None:
            raise SnapshotError(f"the disk of {log.topic_partition} has failed: {log.folder.failure}")
    return Instant(broker.clock.wall_ms(), [FrozenLog(log) for log in logs], store.freeze())


async def _write_logs(broker: Broker, instant: Instant, data: str) -> None:
    _FILES.make_directories(data)
    pace = Pace()
    for log in instant.logs:
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


def _paths(data: Path) -> Iterator[str]:
    """Yields the paths of all files, relative to `data`."""
    for name in _FILES.list_directory(str(data)):
        if _FILES.is_directory(f"{data}/{name}"):
            yield from (f"{name}/{inside}" for inside in _FILES.list_directory(f"{data}/{name}"))
        else:
            yield name

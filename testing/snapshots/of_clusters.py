"""Takes snapshots of clusters at rest, and gives their data to new ones.

(A) At rest: all brokers run and reach each other; no reassignment, deletion or election is under way; all replicas have
    all records. That holds in the turn of the event loop that is the instant, as all brokers share one thread. What is
    not at rest within some time is a SnapshotError, which says why.
(B) The instant notes where all logs of all brokers end, and what the metadata store has. Each broker then writes its
    files, as taking.py has it, while it goes on.
(C) Of a new cluster, nobody is elected as the controller before all brokers are registered: a controller that missed
    one would take its leaderships away.
(D) Users have the passwords that the new cluster is given, and keep others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from odradek.broker.background.stepwise import finished
from odradek.broker.cluster.user_credentials import user_path
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Set, StoreDamaged
from odradek.broker.metadata_store.journal import JOURNAL_NAME, SNAPSHOT_NAME, read_journal, read_snapshot
from odradek.broker.metadata_store.tree import MetadataTree
from odradek.testing.cluster_view import BrokerStatus, ClusterView
from odradek.testing.cluster_waits import ClusterWaits
from odradek.testing.conditions import why_not_at_rest
from odradek.testing.failures import NotReached
from odradek.testing.security import Security
from odradek.testing.snapshots.manifest import Manifest, SnapshotError
from odradek.testing.snapshots.snapshot import Snapshot
from odradek.testing.snapshots.taking import (
    frozen_logs,
    list_files,
    prepare_logs,
    write_directory,
    write_store,
    written,
)

T = TypeVar("T")

STORE = "store"
NO_OWNER = 0


def folder_of(broker_id: int) -> str:
    """The name of a broker's folder, in the data of a cluster and in its snapshots."""
    return f"broker-{broker_id}"


class Run(Protocol):
    """Cluster.run."""

    def __call__(self, broker_id: int, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]: ...


async def take_cluster_snapshot(cluster: ClusterWaits, run: Run, path: str | Path | None, within: float) -> Snapshot:
    """Returns a snapshot in a new directory, by default a temporary one. Raises SnapshotError."""
    _expect_whole(cluster)
    return await written(path, partial(_write, cluster, run, within), lambda: not _why_never_at_rest(cluster))


def _expect_whole(cluster: ClusterView) -> None:
    """Raises SnapshotError."""
    if why_not := _why_never_at_rest(cluster):
        raise SnapshotError(f"{why_not}: a snapshot is of a cluster whose brokers all run and reach each other")


def _why_not_at_rest(cluster: ClusterView) -> str:
    _expect_whole(cluster)
    return why_not_at_rest(cluster)


def _why_never_at_rest(cluster: ClusterView) -> str:
    """What does not end by itself."""
    for broker_id, member in cluster.members.items():
        if member.status is not BrokerStatus.RUNNING:
            return f"broker {broker_id} is {member.status.value}"
        if member.is_cut_from_store or cluster.network.cuts_of(broker_id):
            return f"broker {broker_id} is cut off"
        if cluster.network.is_frozen(broker_id):
            return f"the replication of broker {broker_id} is frozen"
    return ""


async def _write(cluster: ClusterWaits, run: Run, within: float, data: Path) -> Manifest:
    brokers = cluster.brokers
    await asyncio.gather(*(run(broker_id, prepare_logs(broker)) for broker_id, broker in brokers.items()))
    try:
        await cluster.reach(partial(_why_not_at_rest, cluster), "a cluster at rest", within=within)
    except NotReached as error:
        raise SnapshotError(f"a snapshot is of a cluster at rest. {error}") from error
    logs = {broker_id: frozen_logs(broker) for broker_id, broker in brokers.items()}
    store, first = cluster.store.freeze(), next(iter(brokers.values()))
    taken_ms = first.clock.wall_ms()
    await write_store(store, data / STORE)
    await asyncio.gather(
        *(
            run(broker_id, write_directory(broker, logs[broker_id], data / folder_of(broker_id)))
            for broker_id, broker in brokers.items()
        )
    )
    files = await run(first.broker_id, list_files(first, data))
    return Manifest(taken_ms, list(brokers), first.metadata.cluster_id, files, is_of_cluster=True)


def tree_of(snapshot: Snapshot, security: Security) -> MetadataTree:
    """Returns what the metadata store of a new cluster begins with (D). Raises SnapshotError."""
    tree = MetadataTree()
    try:
        read_snapshot(SNAPSHOT_NAME, snapshot.content(f"{STORE}/{SNAPSHOT_NAME}"), tree)
        read_journal(JOURNAL_NAME, snapshot.content(f"{STORE}/{JOURNAL_NAME}"), tree)
    except StoreDamaged as error:
        raise SnapshotError(f"the metadata of the snapshot in {snapshot.path} cannot be read: {error}") from error
    for credentials in security.stored_credentials():
        _forget(tree, user_path(credentials.username), credentials.mechanism)
    return tree


def _forget(tree: MetadataTree, path: str, setting: str) -> None:
    """Removes a setting of a user; brokers add a credential that is missing when they start."""
    entry = tree.get(path)
    if entry is None or entry.data is None:
        return
    config: Mapping[str, str] = znodes.parse_config(path, entry.data)
    left = {name: value for name, value in config.items() if name != setting}
    transaction = finished(tree.stage([Set(path, znodes.encode_config(left))], NO_OWNER))
    tree.apply(transaction.number, transaction.entries)

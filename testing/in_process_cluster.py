"""Starts and ends a cluster (cluster.py) with settings that make sense for tests."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from random import Random

from odradek.broker.background.stepwise import in_steps
from odradek.broker.logging.quiet_logs import QUIET_LOGS, no_warnings
from odradek.broker.network.open_files import open_files_limit
from odradek.broker.start_error import StartError
from odradek.storage.files import Files
from odradek.testing.cluster import SESSION_TIMEOUT, Cluster
from odradek.testing.cluster_view import HOST, Member, no_broker
from odradek.testing.failures import explained_by
from odradek.testing.faults import Faults
from odradek.testing.opening import opened_with_async
from odradek.testing.process_directories import temporary_directory
from odradek.testing.security import PLAINTEXT, Security, as_security
from odradek.testing.setting_texts import FEW_PARTITIONS, setting_texts
from odradek.testing.snapshots.of_clusters import folder_of, tree_of
from odradek.testing.snapshots.origin import has_data
from odradek.testing.snapshots.snapshot import Snapshot, as_snapshot
from odradek.testing.still_loops import STILL_LOOPS
from odradek.testing.virtual_time.controls import WALL, time_of
from odradek.timer import Clock

CHOSEN_BY_THE_CLUSTER = ("broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs")
BROKERS = 3
OF_SINGLE_BROKERS = ("port", "files")
DEFAULTS: Mapping[str, object] = {
    SESSION_TIMEOUT: 500,
    "replica.lag.time.max.ms": 2000,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 2000,
    "controlled.shutdown.retry.backoff.ms": 100,
    **FEW_PARTITIONS,
}
"""A failure is noticed, and repaired, within a second or two. Nothing expires only because the machine is slow: the
sessions of the store in memory need no heartbeats."""


@opened_with_async("ClusterThread")
async def in_process_cluster(
    brokers: int | None = None,
    settings: Mapping[str, object] | None = None,
    *,
    security: str | Security = PLAINTEXT,
    data_dir: str | Path | None = None,
    snapshot: Snapshot | str | Path | None = None,
    settings_of: Mapping[int, Mapping[str, object]] | None = None,
    time: str = WALL,
    clock: Clock | None = None,
    random: Random | None = None,
    open_files: int | None = None,
    journal: bool = False,
    **more_settings: object,
) -> AsyncIterator[Cluster]:
    """Yields a cluster of running brokers that know each other, three by default; see cluster.py.

    `security`: a protocol (`SASL_SSL`) or more (security.py), for clients and between brokers. `snapshot`: what it
    starts from, with as many brokers. `time`: `wall`, or
    `virtual` (virtual_time/). With `data_dir`, the brokers' data is kept there, in broker-1 and so on. `settings_of`
    gives settings to single brokers, by id, such as a rack. `open_files`: how many files the process may have open
    (default: the system's limit). `journal`: keeps the requests from the start. Raises StartError, SnapshotError, and
    ValueError for impossible arguments; at the end NeverAwaited and UnusedFaults.
    """
    keeps_data = data_dir is not None
    secured, virtual = as_security(security), time_of(time, clock)
    for name in OF_SINGLE_BROKERS:
        if name in more_settings:
            raise ValueError(f"{name} is for single brokers: a cluster takes none")
    origin = None if snapshot is None else as_snapshot(snapshot, of_cluster=True)
    brokers = _count(brokers, origin)
    ids = range(1, brokers + 1)
    for broker_id in settings_of or {}:
        if broker_id not in ids:
            raise ValueError(f"settings_of: {no_broker(broker_id, ids)}")
    common = setting_texts({**DEFAULTS, **_replication(brokers), **(settings or {})}, more_settings)
    async with contextlib.AsyncExitStack() as stack:
        temporary = await stack.enter_async_context(temporary_directory())
        if data_dir is None:
            data_dir = temporary
        stack.enter_context(QUIET_LOGS.shown())
        warnings = no_warnings()
        members = []
        for broker_id in ids:
            reserved = stack.enter_context(contextlib.closing(_reserved_port()))
            texts = common | setting_texts((settings_of or {}).get(broker_id, {}), {})
            for name in CHOSEN_BY_THE_CLUSTER:
                if name in texts:
                    raise ValueError(f"{name} is chosen by the cluster")
            texts = secured.settings(f"{HOST}:{reserved.getsockname()[1]}", temporary) | texts
            texts["broker.id"] = str(broker_id)
            texts["log.dirs"] = str(Path(data_dir, folder_of(broker_id)))
            members.append(Member(broker_id, texts, reserved))
        faults = Faults(journal=journal)
        if origin is not None:
            await _prepare(members, origin, faults.files())
        most_open = open_files_limit() if open_files is None else open_files
        cluster = Cluster(
            members,
            secured,
            virtual_time=virtual,
            clock=clock,
            random=random,
            open_files=most_open,
            keeps_data=keeps_data,
            warnings=warnings,
            faults=faults,
            tree=None if origin is None else tree_of(origin, secured),
        )
        try:
            await cluster.open()
            stack.enter_context(QUIET_LOGS.kept_in(warnings))
            with STILL_LOOPS.watched(cluster.ports) as watched, explained_by(cluster.calls, watched):
                yield cluster
                await cluster.calls.check()
                cluster.faults.check()
        finally:
            cluster.faults.clear()
            await cluster.close()


def _count(brokers: int | None, origin: Snapshot | None) -> int:
    """Returns how many brokers there are. Raises TypeError, ValueError."""
    of_origin = None if origin is None else len(origin.broker_ids)
    if brokers is None:
        return of_origin or BROKERS
    if not isinstance(brokers, int):
        raise TypeError(f"brokers is a number, not {brokers!r}; settings come second, or as settings={{...}}")
    if brokers < 1:
        raise ValueError("a cluster has at least one broker")
    if of_origin not in (None, brokers):
        raise ValueError(f"brokers={brokers}, but the snapshot is of {of_origin}: leave brokers out")
    return brokers


async def _prepare(members: Iterable[Member], origin: Snapshot, files: Files) -> None:
    """Puts the snapshot into the log directories. Raises StartError, SnapshotError."""
    for member in members:
        directory = member.settings["log.dirs"]
        if has_data(files, directory):
            raise StartError(f"{directory} has data: a cluster starts from a snapshot in an empty directory")
        await in_steps(origin.put_into(directory, files, f"{folder_of(member.broker_id)}/"))


def _replication(brokers: int) -> dict[str, object]:
    """Three replicas where there are three brokers, two of which acknowledge: one broker may fail."""
    replicas = min(brokers, 3)
    least = max(replicas - 1, 1)
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "min.insync.replicas": least,
        "transaction.state.log.min.isr": least,
    }


def _reserved_port() -> socket.socket:
    """Returns a socket that is bound to a free port and does not listen. A broker can listen on the port, time and
    again; meanwhile the system gives it to nobody else.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    return reserved

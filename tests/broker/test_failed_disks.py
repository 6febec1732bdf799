"""One of a broker's log directories fails, in a cluster within this process: other brokers take over what is in it, and
the rest of the broker goes on.

A directory is a part of the broker's only one here: the folders of one topic. Replicas fail one by one, when they are
written to.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from odradek.broker.metadata_store import znodes
from odradek.protocol.errors import ErrorCode
from odradek.storage.files import Buffer, OsFile
from odradek.testing import Cluster, in_process_cluster
from tests.wire.records import produce, values

LOST, KEPT = "lost", "kept"


class Disk:
    """The disk below the folders of the topic LOST on broker 1. Its writes fail while `has_failed`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_failed = False
        write = OsFile.write

        def written(file: OsFile, parts: Sequence[Buffer], position: int, *more: Any) -> Any:
            if self.has_failed and f"broker-1/{LOST}-" in file.path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
            return write(file, parts, position, *more)

        monkeypatch.setattr(OsFile, "write", written)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_process_cluster(3) as cluster:
        for name in (LOST, KEPT):
            await cluster.create_topic(name, assignments={0: [1, 2, 3]})
            assert await produce(cluster.bootstrap_of(1), name, b"before") is ErrorCode.NONE
        yield cluster


async def test_other_replicas_take_over_from_a_leader_whose_disk_fails(cluster: Cluster, disk: Disk) -> None:
    disk.has_failed = True
    assert await produce(cluster.bootstrap_of(1), LOST, b"refused") is ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.wait_for_leader(LOST, 0, 2)
    await cluster.wait_for_isr(LOST, 0, {2, 3})
    assert await produce(cluster.bootstrap_of(2), LOST, b"after") is ErrorCode.NONE
    assert await values(cluster.bootstrap_of(2), LOST) == [b"before", b"after"]

    assert await produce(cluster.bootstrap_of(1), LOST, b"refused") is ErrorCode.KAFKA_STORAGE_ERROR
    assert await produce(cluster.bootstrap_of(1), KEPT, b"after") is ErrorCode.NONE
    assert cluster.leader(KEPT, 0) == 1
    assert cluster.isr(KEPT, 0) == {1, 2, 3}
    store = cluster.brokers[2].metadata_store
    assert await cluster.run(2, store.children(znodes.LOG_DIR_EVENTS)) == []


async def test_a_follower_whose_disk_fails_leaves_the_isr_and_nobody_waits_for_it(cluster: Cluster, disk: Disk) -> None:
    await cluster.create_topic(f"{LOST}-too", assignments={0: [2, 1, 3]})
    disk.has_failed = True
    assert await produce(cluster.bootstrap_of(2), f"{LOST}-too", b"one", timeout_ms=20_000) is ErrorCode.NONE
    await cluster.wait_for_isr(f"{LOST}-too", 0, {2, 3})
    assert await produce(cluster.bootstrap_of(1), KEPT, b"after") is ErrorCode.NONE


async def test_a_broker_has_its_replicas_again_when_it_starts_with_another_disk(cluster: Cluster, disk: Disk) -> None:
    disk.has_failed = True
    assert await produce(cluster.bootstrap_of(1), LOST, b"refused") is ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.wait_for_isr(LOST, 0, {2, 3})
    disk.has_failed = False
    await cluster.restart(1)
    await cluster.wait_until_stable()
    assert cluster.isr(LOST, 0) == {1, 2, 3}
    assert await values(cluster.bootstrap_of(cluster.leader(LOST, 0) or 0), LOST) == [b"before"]

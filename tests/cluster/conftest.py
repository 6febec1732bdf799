from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, Start
from tests.cluster.process_cluster import process_cluster
from tests.cluster.thread_cluster import thread_cluster
from tests.spawned_broker import free_port
from tests.zookeeper.real_zookeeper import running_with
from tests.zookeeper.stores import new_chroot

KINDS: dict[str, Start] = {"in one process": thread_cluster, "as processes": process_cluster}
ON_ZOOKEEPER = "on ZooKeeper"
TICK_MS = 500
"""Sessions live for at least two ticks."""


@pytest.fixture(scope="session")
def quick_zookeeper(kafka_control: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a ZooKeeper of Apache's whose sessions may be as short as the tests' are."""
    port = free_port()
    settings = {"clientPort": str(port), "clientPortAddress": "127.0.0.1", "tickTime": str(TICK_MS)}
    with running_with(kafka_control, tmp_path_factory.mktemp("zookeeper"), settings):
        yield f"127.0.0.1:{port}"


@pytest.fixture(params=[*KINDS, pytest.param(ON_ZOOKEEPER, marks=pytest.mark.programs)])
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a cluster, of each kind in turn."""
    if request.param == ON_ZOOKEEPER:
        return partial(process_cluster, zookeeper=request.getfixturevalue("quick_zookeeper") + new_chroot())
    return KINDS[request.param]


@pytest.fixture
def cluster(start: Start, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers."""
    with start(tmp_path) as cluster:
        cluster.create_offsets_topic()
        yield cluster


@pytest.fixture(scope="session")
def dump_tool() -> list[str]:
    """The command before the name of a class of Kafka's tools, or nothing: then only our own dump reads the files."""
    return shlex.split(os.environ.get("KAFKA_TOOLS", ""))

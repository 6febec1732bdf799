from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, Start
from tests.cluster.process_cluster import process_cluster
from tests.cluster.thread_cluster import thread_cluster

KINDS: dict[str, Start] = {"in one process": thread_cluster, "as processes": process_cluster}


@pytest.fixture(params=KINDS)
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a cluster, of each kind in turn."""
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

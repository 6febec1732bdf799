"""A cluster for each test file, and the servers that its machines reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import BrokerThread
from tests.pipeline.cluster.namespaced_cluster import NamespacedCluster, namespaced_cluster
from tests.pipeline.cluster.object_store import ObjectStore, s3_server


@pytest.fixture(scope="module")
def cluster(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespacedCluster]:
    with namespaced_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster_store(
    cluster: NamespacedCluster, versitygw: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectStore]:
    """An S3 server at an address that the machines reach."""
    with s3_server(versitygw, tmp_path_factory.mktemp("cluster-store"), cluster.address) as store:
        yield store


@pytest.fixture(scope="module")
def cluster_broker(cluster: NamespacedCluster) -> Iterator[BrokerThread]:
    """A broker at an address that the machines reach."""
    with BrokerThread(listeners=f"PLAINTEXT://{cluster.address}:0", num_partitions=2) as running:
        yield running

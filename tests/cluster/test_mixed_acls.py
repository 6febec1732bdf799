"""ACLs of a cluster of one Apache Kafka broker and one of ours: both see what either has stored in ZooKeeper."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.mixed_cluster import APACHE, JVM, OF_THE_CLUSTER, MixedCluster, mixed_cluster
from tests.patience import block_until
from tests.zookeeper.stores import new_chroot

OURS = 2
TOOL_S = 60
SETTINGS = {
    **OF_THE_CLUSTER,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Iterator[MixedCluster]:
    with mixed_cluster(kafka_control, zookeeper + new_chroot(), tmp_path, brokers=2, settings=SETTINGS) as cluster:
        yield cluster


def acl_command(java_tools: Sequence[str], cluster: MixedCluster, broker_id: int, *arguments: str) -> list[str]:
    """The lines that Kafka's AclCommand prints, sorted: those of ACLs come out of a hash table."""
    address = cluster.nodes[broker_id].address
    command = [*java_tools, "kafka.admin.AclCommand", "--bootstrap-server", address, *arguments]
    environment = {**os.environ, "KOPTS": JVM}
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TOOL_S, env=environment)
    return sorted(line.strip() for line in run.stdout.splitlines() if line.strip())


@pytest.mark.parametrize(("one", "other"), [(APACHE, OURS), (OURS, APACHE)])
def test_an_acl_of_one_broker_is_seen_and_removed_by_the_other(
    cluster: MixedCluster, java_tools: list[str], one: int, other: int
) -> None:
    of_topic = ("--topic", "orders", "--resource-pattern-type", "prefixed")
    of_group = ("--group", "readers")
    acl_command(
        java_tools, cluster, one, "--add", "--allow-principal", "User:alice", "--consumer", *of_topic, *of_group
    )
    acl_command(
        *(java_tools, cluster, one, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1"),
        *("--operation", "Write", "--topic", "*"),
    )
    stored = acl_command(java_tools, cluster, one, "--list")
    assert len([line for line in stored if "principal=" in line]) == 4
    block_until(lambda: acl_command(java_tools, cluster, other, "--list") == stored)
    acl_command(java_tools, cluster, other, "--remove", "--force", *of_topic)
    rest = acl_command(java_tools, cluster, other, "--list")
    assert any("principal=User:bob" in line for line in rest)
    assert not any("orders" in line for line in rest)
    block_until(lambda: acl_command(java_tools, cluster, one, "--list") == rest)

"""The disk of one of a broker's two log directories is full, under load: the broker goes on with the other one, and
others lead what is on the full one. When there is room again, all replicas are in sync again, without a restart.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.metadata_store import znodes
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.cluster.cluster import PATIENT_SETTINGS, Cluster, Node
from tests.cluster.process_cluster import ProcessCluster
from tests.cluster.writer import Writer
from tests.cluster.zookeeper_client import zookeeper_client
from tests.patience import block_until
from tests.wire.blocking_client import Client
from tests.zookeeper.stores import new_chroot

TOPIC, PARTITIONS = "numbers", 6
FULL = "full"
SIZE = "64m"
VICTIM = 2

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class ClusterOnTwoDisks(ProcessCluster):
    """Each broker has a second log directory."""

    def _log_dirs(self, node: Node) -> str:
        return f"{node.data},{second_of(node)}"


def second_of(node: Node) -> Path:
    return node.data.with_name(f"{node.data.name}-{FULL}")


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A disk of its own at a directory."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "log-directory", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill(disk: Path) -> Path:
    """Leaves no room. Returns the file that takes it."""
    path = disk / "full"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def log_dirs(cluster: Cluster, broker_id: int) -> dict[str, DescribeLogDirsResponse.DescribeLogDirsResult]:
    """What a broker says of its log directories."""
    with Client(cluster.nodes[broker_id].address) as connection:
        answer = connection.ask(DescribeLogDirsRequest(topics=None))
    return {os.path.normpath(result.log_dir): result for result in answer.results}


def why_out(cluster: Cluster) -> list[tuple[int, str, int]]:
    """The replicas that are not in sync, as the command shows them: broker, reason, number of the partition."""
    command = [sys.executable, "-m", "odradek.cli", "cluster", "describe", "--json"]
    shown = subprocess.run([*command, "--bootstrap-server", cluster.bootstrap], check=True, capture_output=True)
    return [
        (entry["broker"], entry["reason"], number)
        for entry in json.loads(shown.stdout)["out_of_sync"]
        for _, number in entry["partitions"]
    ]


def test_a_broker_goes_on_with_its_other_directory(quick_zookeeper: str, namespaces: None, tmp_path: Path) -> None:
    zookeeper = quick_zookeeper + new_chroot()
    cluster = ClusterOnTwoDisks(tmp_path, PATIENT_SETTINGS, 3, zookeeper)
    full = second_of(cluster.nodes[VICTIM])
    with (
        small_disk(full),
        contextlib.closing(cluster),
        contextlib.ExitStack() as at_the_end,
        zookeeper_client(zookeeper) as client,
    ):
        at_the_end.callback(cluster.print_logs)
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS)
        writer = Writer(cluster.bootstrap, TOPIC, PARTITIONS)
        at_the_end.callback(writer.stop)
        writer.until_acknowledged()
        there = {
            part.partition_index for topic in log_dirs(cluster, VICTIM)[str(full)].topics for part in topic.partitions
        }
        assert there, "the partitions are spread over both directories"

        taken = fill(full)
        view = cluster.until(
            lambda view: all((VICTIM in part.isr) != (key.partition in there) for key, part in view.partitions.items())
        )
        assert all(view.partitions[key].leader != VICTIM for key in view.partitions if key.partition in there)
        assert any(part.leader == VICTIM for part in view.partitions.values()), "it leads in its other directory"
        block_until(lambda: not client.children(znodes.LOG_DIR_EVENTS))
        writer.until_acknowledged()

        out = {number for _, reason, number in why_out(cluster) if str(full) in reason or "No space left" in reason}
        assert out == there

        taken.unlink()
        cluster.until_whole()
        assert why_out(cluster) == []
        writer.until_acknowledged()
        writer.finish()
        writer.assert_written_once_and_in_order(cluster.bootstrap)

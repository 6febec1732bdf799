"""Three brokers on a real ZooKeeper, used by all kinds of clients, while one thing after the other fails: every
acknowledged record is read once and in order, and the replicas agree.

ODRADEK_FAULT_ROUNDS says how often a soak repeats each fault. Faults that need another view are elsewhere:

    tests/zookeeper/test_registration.py             the answer to a registration is lost, and the session ends: again
    tests/zookeeper/test_ended_sessions.py           what leaders and controllers do whose session has ended
    tests/zookeeper/test_lost_data.py                ZooKeeper has lost its data, or has that of another cluster
    tests/zookeeper/test_corrupt_entries.py          entries that nobody can read
    tests/zookeeper/test_signals.py                  SIGTERM without ZooKeeper
    tests/broker/metadata_store/test_zookeeper_login.py     a wrong password, and what clients of the store see of it
    tests/broker/cluster/test_restarts.py, test_registration.py     an empty disk, a wrong cluster id, an id in use
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import Cluster
from tests.cluster.faults import IN_CI, OF_BROKERS, Fault, Stage
from tests.cluster.load import load_on
from tests.cluster.networked_cluster import networked_cluster
from tests.cluster.process_cluster import process_cluster
from tests.cluster.writer import percentile
from tests.cluster.zookeeper_client import zookeeper_client
from tests.cluster.zookeeper_faults import OF_ZOOKEEPER
from tests.soak import SOAK
from tests.zookeeper.stores import new_chroot

ROUNDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "10"))

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@contextlib.contextmanager
def stage_on(
    cluster: Cluster, zookeeper: str, directory: Path, java_tools: list[str], java_programs: list[str]
) -> Iterator[Stage]:
    """A cluster under load. In the end the load is judged, and then what the brokers have stored."""
    with zookeeper_client(zookeeper) as client:
        with load_on(cluster, directory, java_tools, java_programs) as load:
            stage = Stage(cluster, client, load, defaultdict(list))
            stage.whole()
            yield stage
        assert_replicas_agree(cluster, java_tools)


def times(leaderless: dict[str, list[float]]) -> str:
    """A line for each fault."""
    return "\n".join(
        f"{name}: {len(seconds)} times, without a leader p50 {percentile(seconds, 0.5):.2f} s, "
        f"longest {max(seconds):.2f} s"
        for name, seconds in leaderless.items()
    )


def test_nothing_is_lost_doubled_or_reordered_by_four_faults_under_load(
    quick_zookeeper: str,
    java_tools: list[str],
    java_programs: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    zookeeper = quick_zookeeper + new_chroot()
    with (
        process_cluster(tmp_path, zookeeper=zookeeper) as cluster,
        stage_on(cluster, zookeeper, tmp_path, java_tools, java_programs) as stage,
    ):
        for fault in IN_CI:
            fault(stage)
            stage.whole()
    with capsys.disabled():
        print(f"\n{times(stage.leaderless)}")


if SOAK:

    @pytest.mark.soak(
        f"{ROUNDS} of each fault of brokers, ZooKeeper and the network, under all kinds of load", minutes=90
    )
    @pytest.mark.parametrize("fault", [*OF_BROKERS, *OF_ZOOKEEPER], ids=lambda fault: fault.__name__)
    def test_nothing_is_lost_doubled_or_reordered_by_a_fault_that_comes_again(
        namespaces: None,
        kafka_control: list[str],
        java_tools: list[str],
        java_programs: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        fault: Fault,
    ) -> None:
        with (
            networked_cluster(kafka_control, tmp_path) as cluster,
            stage_on(cluster, cluster.zookeeper.address, tmp_path, java_tools, java_programs) as stage,
        ):
            for _ in range(ROUNDS):
                fault(stage)
                stage.whole()
        with capsys.disabled():
            print(f"\n{times(stage.leaderless)}")

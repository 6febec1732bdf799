"""SIGTERM while the controller hangs but keeps its session, on Apache's ZooKeeper: the broker gives up the controlled
shutdown, and ends cleanly before a service manager would kill it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.cluster import PATIENT_SETTINGS
from tests.cluster.process_cluster import ProcessCluster
from tests.zookeeper.stores import new_chroot

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

KILLED_AFTER_S = 60
"""TimeoutStopSec of the service units that we write, stop_grace_period of docker-compose.cluster.yml."""


class PatientCluster(ProcessCluster):
    """Sessions outlive a shutdown. ZooKeeper grants at most twenty ticks of two seconds."""

    session_timeout_ms = 40_000

    def wait(self, broker_id: int, within_s: float) -> int:
        with self._processes.pop(broker_id) as process:
            return process.wait(within_s)

    def ask_to_stop(self, broker_id: int) -> None:
        self._signal(broker_id, signal.SIGTERM)


def test_a_broker_ends_cleanly_although_the_controller_hangs_and_keeps_its_session(
    zookeeper: str, tmp_path: Path
) -> None:
    cluster = PatientCluster(tmp_path, PATIENT_SETTINGS, 3, zookeeper + new_chroot())
    with contextlib.closing(cluster), contextlib.ExitStack() as at_the_end:
        at_the_end.callback(cluster.print_logs)
        cluster.start()
        cluster.create_topic("numbers", 6)
        controller = cluster.controller()
        leaving = next(one for one in cluster.nodes if one != controller)
        cluster.stop(controller)
        at_the_end.callback(cluster.go_on, controller)
        cluster.ask_to_stop(leaving)
        try:
            status = cluster.wait(leaving, KILLED_AFTER_S)
        except subprocess.TimeoutExpired:
            pytest.fail("a service manager would have killed it")
        assert status == 0
        assert cluster.has_said(leaving, '"gives_up": "the controlled shutdown')
        assert (cluster.nodes[leaving].data / ".kafka_cleanshutdown").exists()

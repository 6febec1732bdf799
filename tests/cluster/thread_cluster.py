"""A cluster whose brokers are in this process, in a thread of their own: those of `odradek.testing`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from odradek.testing import BrokerStatus, ClusterThread
from tests.cluster.cluster import SETTINGS, Cluster, Node

SESSION_TIMEOUT_MS = 500


class ThreadCluster(Cluster):
    """Started by `thread_cluster`."""

    def __init__(self, thread: ClusterThread) -> None:
        self._thread = thread
        self.session_timeout_ms = SESSION_TIMEOUT_MS
        self.nodes = {one: Node(thread.bootstrap_of(one), thread.data_dir(one)) for one in thread.ids}

    @property
    def running(self) -> list[int]:
        return self._thread.running

    @property
    def stopped(self) -> Collection[int]:
        return [one for one in self.nodes if self._thread.status(one) is BrokerStatus.PAUSED]

    def launch(self, broker_id: int) -> None:
        self._thread.start(broker_id)

    def kill(self, broker_id: int) -> None:
        self._thread.kill(broker_id)

    def terminate(self, broker_id: int) -> None:
        self._thread.stop(broker_id)

    def stop(self, broker_id: int) -> None:
        self._thread.pause(broker_id)

    def go_on(self, broker_id: int) -> None:
        self._thread.resume(broker_id)


@contextlib.contextmanager
def thread_cluster(
    directory: Path, settings: Mapping[str, str] | None = None, *, brokers: int = 3
) -> Iterator[ThreadCluster]:
    """A running cluster. Prints its state in the end: pytest shows it if the test has failed."""
    timeout = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    with ClusterThread(brokers, {**SETTINGS, **timeout, **(settings or {})}, data_dir=directory) as thread:
        yield ThreadCluster(thread)
        print(thread.describe())

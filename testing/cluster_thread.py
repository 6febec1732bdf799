"""A cluster on an event loop in a thread of its own, for blocking clients.

    with ClusterThread(brokers=3) as cluster:
        cluster.create_topic("orders")
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        ...
        cluster.kill(cluster.leader("orders", 0))

Its methods are made from those of `Cluster` (blocking.py) and block until they are done. The pytest fixture
`odradek_cluster` is one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from odradek.testing.blocking import InThread, anywhere, blocking
from odradek.testing.cluster import Cluster
from odradek.testing.cluster_waits import LONGEST_POLL_S, SETTLED_WITHIN_S
from odradek.testing.in_process_cluster import in_process_cluster
from odradek.testing.loop_thread import LoopThread
from odradek.testing.security import PLAINTEXT, Security
from odradek.testing.snapshots.snapshot import Snapshot
from odradek.testing.virtual_time.controls import WALL, decided

T = TypeVar("T")
P = ParamSpec("P")


class ClusterThread(InThread[Cluster]):
    """Use it as a context manager, or call `open` and `close`. Arguments as for `in_process_cluster`."""

    ASYNC = "in_process_cluster"

    def __init__(
        self,
        brokers: int | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        security: str | Security = PLAINTEXT,
        data_dir: str | Path | None = None,
        snapshot: Snapshot | str | Path | None = None,
        settings_of: Mapping[int, Mapping[str, object]] | None = None,
        time: str = WALL,
        journal: bool = False,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **more_settings: object,
    ) -> None:
        """`loop_factory`: uvloop's by default, if installed."""
        arguments: dict[str, Any] = {
            "security": security,
            "data_dir": data_dir,
            "snapshot": snapshot,
            "settings_of": settings_of,
            "time": time,
            "journal": journal,
            **more_settings,
        }
        self._thread: LoopThread[Cluster] = LoopThread(
            lambda: in_process_cluster(brokers, settings, **arguments),
            name="odradek-cluster",
            loop_factory=loop_factory,
        )

    def open(self) -> None:
        """Returns when all brokers serve clients. Raises StartError."""
        self._thread.start()

    def close(self) -> None:
        """Returns when all brokers have stopped and the thread has ended. May be called again. Raises UnusedFaults."""
        self._thread.stop()

    @property
    def cluster(self) -> Cluster:
        """The cluster itself, whose methods must run in its thread: use `call` and `run`."""
        return self._thread.inside

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function in the cluster's thread and returns its result."""
        return self._in_thread(function, *args, **kwargs)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the cluster in its thread and returns its result."""
        return self._thread.call(coroutine)

    _wait_for = run

    # What there is

    @property
    def bootstrap(self) -> str:
        """See Cluster."""
        return self.cluster.bootstrap

    @property
    def ids(self) -> list[int]:
        """See Cluster."""
        return self.cluster.ids

    @property
    def running(self) -> list[int]:
        """See Cluster."""
        return self.call(lambda: self.cluster.running)

    @property
    def controller(self) -> int | None:
        """See Cluster."""
        return self.call(lambda: self.cluster.controller)

    bootstrap_of = anywhere(Cluster.bootstrap_of)
    client_settings = anywhere(Cluster.client_settings)
    client_properties = anywhere(Cluster.client_properties)
    data_dir = anywhere(Cluster.data_dir)
    status = anywhere(Cluster.status)
    leader = blocking(Cluster.leader)
    isr = blocking(Cluster.isr)
    describe = blocking(Cluster.describe)

    # What can be done to it

    start = blocking(Cluster.start)
    stop = blocking(Cluster.stop)
    restart = blocking(Cluster.restart)
    kill = blocking(Cluster.kill)
    pause = blocking(Cluster.pause)
    resume = blocking(Cluster.resume)
    cut = blocking(Cluster.cut)
    cut_from_store = blocking(Cluster.cut_from_store)
    cut_off = blocking(Cluster.cut_off)
    heal = blocking(Cluster.heal)
    freeze_replication = blocking(Cluster.freeze_replication)
    thaw = blocking(Cluster.thaw)
    create_topic = blocking(Cluster.create_topic)
    move_leader = blocking(Cluster.move_leader)
    move_coordinator = blocking(Cluster.move_coordinator)
    snapshot = blocking(Cluster.snapshot)

    # Waiting

    wait_for_leader = blocking(Cluster.wait_for_leader)
    wait_for_isr = blocking(Cluster.wait_for_isr)
    wait_until_stable = blocking(Cluster.wait_until_stable)

    def wait_until(self, condition: Callable[[], object], *, within: float = SETTLED_WITHIN_S, what: str = "") -> None:
        """Waits until `condition()` holds. It is called in the caller's thread, so it may use a blocking client. Raises
        NotReached.
        """
        give_up = time.monotonic() + within
        while not decided(condition):
            if time.monotonic() >= give_up:
                raise self.call(self.cluster.not_reached, what or "a condition", within)
            time.sleep(LONGEST_POLL_S)

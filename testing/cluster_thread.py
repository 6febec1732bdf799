"""A cluster on an event loop in a thread of its own, for blocking clients.

    with ClusterThread(brokers=3) as cluster:
        cluster.create_topic("orders")
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        ...
        cluster.kill(cluster.leader("orders", 0))

Its methods are those of `Cluster` and block until they are done. The pytest fixture `odradek_cluster` is one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack

from odradek.testing.asking import WITHIN_S
from odradek.testing.cluster import Cluster
from odradek.testing.cluster_view import BrokerStatus
from odradek.testing.cluster_waits import LONGEST_POLL_S, SETTLED_WITHIN_S
from odradek.testing.failures import explain
from odradek.testing.faults import Fault, Faults, Journal, Request
from odradek.testing.faults.selector import Selected
from odradek.testing.in_process_cluster import in_process_cluster
from odradek.testing.loop_thread import LoopThread
from odradek.testing.opening import Blocking
from odradek.testing.right_calls import NamesTheRightCall
from odradek.testing.security import PLAINTEXT, Security
from odradek.testing.snapshots.snapshot import Snapshot
from odradek.testing.virtual_time.controls import AN_HOUR_S, WALL, Span, decided, name_of

T = TypeVar("T")
P = ParamSpec("P")


class ClusterThread(NamesTheRightCall, Blocking):
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

    def __enter__(self) -> ClusterThread:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            explain(error, self.cluster.calls)
            self.faults.clear()
        self.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster itself, whose methods must run in its thread: use `call` and `run`."""
        return self._thread.inside

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function in the cluster's thread and returns its result."""

        async def in_thread() -> T:
            return function(*args, **kwargs)

        return self._thread.call(in_thread())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the cluster in its thread and returns its result."""
        return self._thread.call(coroutine)

    # What there is

    @property
    def ids(self) -> list[int]:
        """See Cluster."""
        return self.cluster.ids

    @property
    def bootstrap(self) -> str:
        """See Cluster."""
        return self.cluster.bootstrap

    @property
    def faults(self) -> Faults:
        """See Cluster."""
        return self.cluster.faults

    @property
    def requests(self) -> Journal:
        """See Cluster."""
        return self.cluster.requests

    def request(self, *, within: float = WITHIN_S, answered: bool = False, **selected: Unpack[Selected]) -> Request:
        """See Cluster."""
        return self.run(self.cluster.request(within=within, answered=answered, **selected))

    def wait_for_hits(self, fault: Fault, hits: int = 1, *, within: float = WITHIN_S) -> None:
        """See Cluster."""
        self.run(self.cluster.wait_for_hits(fault, hits, within=within))

    def bootstrap_of(self, broker_id: int) -> str:
        """See Cluster."""
        return self.cluster.bootstrap_of(broker_id)

    def client_settings(self, client: str, user: str | None = None) -> dict[str, Any]:
        """See Cluster."""
        return self.cluster.client_settings(client, user)

    def client_properties(self, user: str | None = None) -> str:
        """See Cluster."""
        return self.cluster.client_properties(user)

    def data_dir(self, broker_id: int) -> Path:
        """See Cluster."""
        return self.cluster.data_dir(broker_id)

    @property
    def running(self) -> list[int]:
        """See Cluster."""
        return self.call(lambda: self.cluster.running)

    @property
    def controller(self) -> int | None:
        """See Cluster."""
        return self.call(lambda: self.cluster.controller)

    def status(self, broker_id: int) -> BrokerStatus:
        """See Cluster."""
        return self.cluster.status(broker_id)

    def leader(self, topic: str, partition: int) -> int | None:
        """See Cluster."""
        return self.call(self.cluster.leader, topic, partition)

    def isr(self, topic: str, partition: int) -> set[int]:
        """See Cluster."""
        return self.call(self.cluster.isr, topic, partition)

    def describe(self) -> str:
        """See Cluster."""
        return self.call(self.cluster.describe)

    # Its time

    def advance(self, by: Span, *, keep_members: bool = False) -> None:
        """See TimeControls."""
        self.run(self.cluster.advance(by, keep_members=keep_members))

    def advance_until(
        self, condition: Callable[[], object], *, within: Span = AN_HOUR_S, what: str = "", keep_members: bool = False
    ) -> None:
        """See TimeControls. The condition is called in a thread, so it may use a blocking client."""
        until = partial(self.cluster.advance_until, partial(asyncio.to_thread, decided, condition), within=within)
        self.run(until(what=what or name_of(condition), keep_members=keep_members))

    # What can be done to it

    def start(self, broker_id: int) -> None:
        """See Cluster."""
        self.run(self.cluster.start(broker_id))

    def stop(self, broker_id: int) -> None:
        """See Cluster."""
        self.run(self.cluster.stop(broker_id))

    def restart(self, broker_id: int) -> None:
        """See Cluster."""
        self.run(self.cluster.restart(broker_id))

    def kill(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.kill, broker_id)

    def pause(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.pause, broker_id)

    def resume(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.resume, broker_id)

    def cut(self, a: int, b: int) -> None:
        """See Cluster."""
        self.call(self.cluster.cut, a, b)

    def cut_from_store(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.cut_from_store, broker_id)

    def cut_off(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.cut_off, broker_id)

    def heal(self, broker_id: int, other: int | None = None) -> None:
        """See Cluster."""
        self.call(self.cluster.heal, broker_id, other)

    def freeze_replication(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.freeze_replication, broker_id)

    def thaw(self, broker_id: int) -> None:
        """See Cluster."""
        self.call(self.cluster.thaw, broker_id)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
        within: float = SETTLED_WITHIN_S,
    ) -> None:
        """See Cluster."""
        self.run(
            self.cluster.create_topic(
                name,
                partitions,
                replication_factor=replication_factor,
                assignments=assignments,
                configs=configs,
                within=within,
            )
        )

    def move_leader(self, topic: str, partition: int, to: int, *, within: float = SETTLED_WITHIN_S) -> None:
        """See Cluster."""
        self.run(self.cluster.move_leader(topic, partition, to, within=within))

    def move_coordinator(
        self,
        to: int,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        within: float = SETTLED_WITHIN_S,
    ) -> None:
        """See Cluster."""
        moved = self.cluster.move_coordinator(to, group=group, transactional_id=transactional_id, within=within)
        self.run(moved)

    def snapshot(self, path: str | Path | None = None, *, within: float = SETTLED_WITHIN_S) -> Snapshot:
        """See Cluster."""
        return self.run(self.cluster.snapshot(path, within=within))

    # Waiting

    def wait_until(self, condition: Callable[[], object], *, within: float = SETTLED_WITHIN_S, what: str = "") -> None:
        """Waits until `condition()` holds. It is called in the caller's thread, so it may use a blocking client. Raises
        NotReached.
        """
        give_up = time.monotonic() + within
        while not decided(condition):
            if time.monotonic() >= give_up:
                raise self.call(self.cluster.not_reached, what or "a condition", within)
            time.sleep(LONGEST_POLL_S)

    def wait_for_leader(
        self, topic: str, partition: int, leader: int | None = None, *, within: float = SETTLED_WITHIN_S
    ) -> int:
        """See Cluster."""
        return self.run(self.cluster.wait_for_leader(topic, partition, leader, within=within))

    def wait_for_isr(
        self, topic: str, partition: int, isr: Collection[int], *, within: float = SETTLED_WITHIN_S
    ) -> None:
        """See Cluster."""
        self.run(self.cluster.wait_for_isr(topic, partition, isr, within=within))

    def wait_until_stable(self, *, within: float = SETTLED_WITHIN_S) -> None:
        """See Cluster."""
        self.run(self.cluster.wait_until_stable(within=within))

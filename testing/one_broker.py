"""A broker inside the process, for tests: on a free port and in a temporary directory, removed afterwards.

    async with in_process_broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)

    async with in_process_broker(security="SASL_SSL") as broker:
        producer = AIOKafkaProducer(**broker.client_settings("aiokafka"))

Settings are Kafka's and override the single-node server.properties: `in_process_broker(log_segment_bytes=10_000)` or
`in_process_broker({"log.segment.bytes": "10000"})`. The internal topics have five partitions instead of 50.
`BrokerThread` runs it in a thread of its own, for blocking clients; the pytest fixture `odradek_broker` uses that.
With `time="virtual"` a test advances the broker's time (virtual_time/). If the program has not configured structlog,
only warnings and errors are logged, to stderr (quiet_logs.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from odradek.broker.logging.quiet_logs import QUIET_LOGS
from odradek.broker.network.open_files import open_files_limit
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.admin.client import AdminClient
from odradek.storage.files import Files
from odradek.testing.asking import BrokerOrCluster
from odradek.testing.blocking import InThread, anywhere, blocking
from odradek.testing.calls import noted
from odradek.testing.client_settings import client_settings, property_text
from odradek.testing.failures import explained_by
from odradek.testing.faults import Faults
from odradek.testing.loop_thread import LoopThread
from odradek.testing.node_loop import NodeLoop
from odradek.testing.opening import ANOTHER_LOOP, opened_with_async
from odradek.testing.process_directories import temporary_directory
from odradek.testing.right_calls import NamesTheRightCall
from odradek.testing.security import PLAINTEXT, Security, add_acls, as_security, set_passwords
from odradek.testing.seeding import Seed, seed
from odradek.testing.setting_texts import FEW_PARTITIONS, setting_texts
from odradek.testing.snapshots.origin import Origin
from odradek.testing.snapshots.snapshot import Snapshot
from odradek.testing.snapshots.taking import take_snapshot
from odradek.testing.still_loops import STILL_LOOPS
from odradek.testing.virtual_time.controls import (
    WALL,
    own_loop,
    time_of,
)
from odradek.testing.virtual_time.state import state_of
from odradek.testing.virtual_time.virtual_time import VirtualTime
from odradek.timer import Clock

T = TypeVar("T")

HOST = "127.0.0.1"
ANY_PORT = f"{HOST}:0"
MOST_PORT = 65535


@noted
class InProcessBroker(BrokerOrCluster, NamesTheRightCall, Broker):
    """A broker, what its clients need to connect to it, and what a test can do to it. `loop`: its own one, which it has
    with virtual time.
    """

    def __init__(
        self, origin: Origin, security: Security, faults: Faults, *, loop: NodeLoop | None = None, **options: Any
    ) -> None:
        super().__init__(origin.config(), wrap_dispatch=faults.wrap, **options)
        self.security = security
        self.faults = faults
        self.virtual_time = self.clock if isinstance(self.clock, VirtualTime) else None
        self._own_loop = loop
        self._below = asyncio.get_running_loop()
        self._has_ended = False
        self._origin = origin
        self._one_at_a_time = asyncio.Lock()
        """Of snapshots and resets."""

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the broker on the loop that the broker runs on, and returns its result. Raises
        RuntimeError in a task of another loop.
        """
        loop, running = self._own_loop, asyncio.get_running_loop()
        if running not in (loop, self._below):
            coroutine.close()
            raise RuntimeError(ANOTHER_LOOP)
        if loop is None or running is loop:
            return await coroutine
        return await loop.run(coroutine)

    def ports(self) -> set[int]:
        """Where it listens."""
        return {endpoint.port for endpoint in self.endpoints}

    def brokers_in_time(self) -> list[Broker]:
        """See TimeControls."""
        return [] if self._has_ended else [self]

    def state_in_time(self) -> str:
        """See TimeControls."""
        return state_of(self)

    def client_settings(self, client: str, user: str | None = None) -> dict[str, Any]:
        """Returns the settings of a client: `kafka-python`, `aiokafka`, `confluent-kafka` or `java`. `user` is who it
        is: one of those who can log in (by default the first), or with SSL any name. Raises ValueError.
        """
        return client_settings(self.security, self.bootstrap, client, user)

    def client_properties(self, user: str | None = None) -> str:
        """Returns the text of a property file for Kafka's programs and the `odradek` commands. Raises ValueError."""
        return property_text(self.client_settings("java", user))

    async def start(self) -> None:
        """As Broker; with what the test starts from, and with the ACLs of its security."""
        await self.run(self._start())

    async def _start(self) -> None:
        await super().start()
        try:
            if self._origin.is_snapshot:
                await set_passwords(self.security, self.cluster.configs, self.random)
            await add_acls(self.security, self.bootstrap, self.random)
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, hand_over: bool = True, keeps_data: bool = True) -> None:
        """See Broker."""
        await self.run(super().stop(hand_over=hand_over, keeps_data=keeps_data))
        self._has_ended = True

    async def snapshot(self, path: str | Path | None = None) -> Snapshot:
        """Returns what the broker has now, for brokers that start from it. With a `path` the snapshot is kept there, in
        a new directory; otherwise it goes with the object. Raises SnapshotError; see docs/testing/snapshots.md.
        """
        return await self.run(self._snapshot(path))

    async def _snapshot(self, path: str | Path | None) -> Snapshot:
        async with self._one_at_a_time:
            return await take_snapshot(self, path)

    async def reset(self) -> None:
        """Brings the broker back to what it was at its start, at the same address. Clients are disconnected. Raises
        ResetError; StartError and SnapshotError if it cannot start again.
        """
        await self.run(self._reset())

    async def _reset(self) -> None:
        async with self._one_at_a_time:
            await self._origin.reset(self)

    async def seed(self, topics: Mapping[str, Iterable[Seed]], *, partitions: int | None = None) -> None:
        """Writes records, by topic. Missing topics are created, with so many `partitions`. Raises ValueError,
        ProtocolError; see seeding.py.
        """
        if not self._below.is_running():
            raise RuntimeError(ANOTHER_LOOP)
        connect = self.security.of_brokers().connect(self.random)
        async with AdminClient(self.bootstrap, connect=connect) as admin:
            await seed(admin, topics, partitions, self.clock.wall_ms())


@opened_with_async("BrokerThread")
async def in_process_broker(
    settings: Mapping[str, object] | None = None,
    *,
    security: str | Security = PLAINTEXT,
    port: int | None = None,
    data_dir: str | Path | None = None,
    snapshot: Snapshot | str | Path | None = None,
    time: str = WALL,
    clock: Clock | None = None,
    random: Random | None = None,
    files: Files | None = None,
    open_files: int | None = None,
    journal: bool = False,
    **more_settings: object,
) -> AsyncIterator[InProcessBroker]:
    """Yields a running broker; `.bootstrap` is its HOST:PORT. With `data_dir`, or log.dirs, its data is kept.

    `security`: a protocol (`SASL_SSL`) or more (security.py). `port`: where it listens on 127.0.0.1, by default a free
    port, as with 0. `snapshot`: what it starts from. `time`: `wall`, or
    `virtual` (virtual_time/). `open_files`: how many files the process may have open (default: the system's limit).
    `journal`: keeps the requests from the start. Raises StartError, SnapshotError, and ValueError for impossible
    arguments; at the end NeverAwaited and UnusedFaults."""
    secured, virtual = as_security(security), time_of(time, clock)
    async with own_loop(virtual) as loop, contextlib.AsyncExitStack() as stack:
        temporary = await stack.enter_async_context(temporary_directory())
        given = setting_texts(settings or {}, more_settings)
        texts = {**FEW_PARTITIONS, **secured.settings(_address(port, secured, given), temporary), **given}
        is_temporary = data_dir is None and not texts.keys() & {"log.dir", "log.dirs"}
        if is_temporary:
            data_dir = temporary / "data"
        if data_dir is not None:
            texts["log.dirs"] = str(data_dir)
        stack.enter_context(QUIET_LOGS.shown())
        faults = Faults(journal=journal, has_disks=files is None)
        disk = faults.files(is_temporary=is_temporary) if files is None else files
        origin = Origin(texts, snapshot, partial(_config, texts, disk))
        most_open = open_files_limit() if open_files is None else open_files
        broker = InProcessBroker(
            origin,
            secured,
            faults,
            loop=loop,
            clock=virtual or clock,
            random=random,
            files=disk,
            open_files=most_open,
        )
        await origin.prepare(broker.config.log_dirs, disk)
        await broker.start()
        try:
            with STILL_LOOPS.watched(broker.ports) as watched, explained_by(faults.calls, watched):
                yield broker
                await faults.calls.check()
                faults.check()
        finally:
            faults.clear()
            await broker.stop(keeps_data=not is_temporary)


def _address(port: int | None, security: Security, given: Mapping[str, str]) -> str:
    """Returns where a broker listens. Raises ValueError if that is said twice."""
    if "listeners" in given and security.protocol != PLAINTEXT:
        raise ValueError(f"listeners is chosen by security={security.protocol}")
    if "listeners" in given and port is not None:
        raise ValueError("port and listeners both say where the broker listens: leave one of them out")
    if port is not None and not 0 <= port <= MOST_PORT:
        raise ValueError(f"port={port}: must be 0, for a free port, to {MOST_PORT}")
    return f"{HOST}:{port}" if port else ANY_PORT


def _config(texts: Mapping[str, str], files: Files, overrides: Mapping[str, str]) -> BrokerConfig:
    return BrokerConfig.single_node({**texts, **overrides}, files=files, environment=os.environ)


class BrokerThread(InThread[InProcessBroker]):
    """A broker on an event loop in a thread of its own. Use it as a context manager, or call `start` and `stop`."""

    ASYNC = "in_process_broker"

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        security: str | Security = PLAINTEXT,
        port: int | None = None,
        data_dir: str | Path | None = None,
        snapshot: Snapshot | str | Path | None = None,
        time: str = WALL,
        journal: bool = False,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **more_settings: object,
    ) -> None:
        """Arguments as for `in_process_broker`. `loop_factory`: uvloop's by default, if installed."""
        arguments: dict[str, Any] = {
            "security": security,
            "port": port,
            "data_dir": data_dir,
            "snapshot": snapshot,
            "time": time,
            "journal": journal,
            **more_settings,
        }
        self._thread: LoopThread[InProcessBroker] = LoopThread(
            lambda: in_process_broker(settings, **arguments),
            name="odradek-broker",
            loop_factory=loop_factory,
        )

    @property
    def broker(self) -> InProcessBroker:
        """The broker, for read access only: change it with `call`."""
        return self._thread.inside

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def console(self) -> str:
        """See Broker."""
        return self.broker.console

    @property
    def data_dir(self) -> Path:
        return Path(self.broker.config.log_dirs[0])

    def start(self) -> None:
        """Returns when clients are served. Raises StartError."""
        self._thread.start()

    def stop(self) -> None:
        """Returns when the broker has stopped and the thread has ended. May be called again. Raises UnusedFaults."""
        self._thread.stop()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the broker's loop and returns its result. Raises RuntimeError before the start, after the
        end, and in the thread of the broker itself.
        """
        self._thread.expect_to_run(coroutine)
        return self._thread.call(self.broker.run(coroutine))

    _wait_for = call

    client_settings = anywhere(InProcessBroker.client_settings)
    client_properties = anywhere(InProcessBroker.client_properties)
    snapshot = blocking(InProcessBroker.snapshot)
    reset = blocking(InProcessBroker.reset)
    seed = blocking(InProcessBroker.seed)

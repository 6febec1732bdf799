"""One machine of the simulated cluster: a disk, a clock, and a broker that can be started, stopped, killed and paused.

A broker starts as a new Node. What it does from then on, the loop assigns to this node, so that `kill` stops all of it
at once and between any two steps. A killed broker object is kept until the end of the simulation: see loop.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.start_error import StartError
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import Node, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.one_offs import SETTINGS as ONE_OFFS
from tests.simulation.trace import Trace

PORT = 9092
DIRECTORIES = ("/data", "/more")
"""The log directories."""


SETTINGS = {
    "log.dirs": ",".join(DIRECTORIES),
    "odradek.metrics.port": "-1",
    "log.cleaner.backoff.ms": "4000",
    "offsets.topic.segment.bytes": "16384",
    "transaction.state.log.segment.bytes": "16384",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    **ONE_OFFS,
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.retention.check.interval.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


class Machine:
    """`node` is the broker's process, None while there is none; `running` the broker while it serves."""

    def __init__(
        self,
        broker_id: int,
        *,
        loop: SimulatedLoop,
        network: Network,
        trace: Trace,
        source: Random,
        settings: Mapping[str, str],
        files: Mapping[str, bytes],
        listeners: Mapping[str, int],
        on_start: Callable[[int], object],
        on_serve: Callable[[str, Broker], object],
        on_end: Callable[[int], object],
        on_launch: Callable[[str, Broker], object],
    ) -> None:
        """`source` seeds everything that is random on this machine. `files` are there at each start, with their paths.
        `listeners` are their names and ports. `on_start` and `on_end` get the broker's id at each start and each end of
        its process, `on_launch` its name and the broker before that starts, `on_serve` when it serves clients.
        """
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.address = f"10.0.0.{broker_id}"
        self.disk = self._watched(SimulatedDisk(), trace)
        self.node: Node | None = None
        self.broker: Broker | None = None
        self.start_errors: list[StartError] = []
        self._loop = loop
        self._network = network
        self._trace = trace
        self._source = source
        self._on_start = on_start
        self._on_serve = on_serve
        self._on_end = on_end
        self._on_launch = on_launch
        self._files = files
        self._settings = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": ",".join(f"{name}://{self.address}:{port}" for name, port in listeners.items()),
            **settings,
        }
        self._up_since_ms = source.randrange(10 * 86_400_000)
        self._skew_ms = source.randint(-2000, 2000)
        self._starts = 0
        self._starting: asyncio.Task[None] | None = None
        self._killed: asyncio.Future[None] = loop.create_future()
        """Done when the current process has ended."""
        self._ended: list[Broker] = []
        network.add_host(self.name, self.address)

    @property
    def running(self) -> Broker | None:
        """The broker, if it serves clients."""
        broker = self.broker
        return broker if broker is not None and self.node is not None and broker.is_serving else None

    @property
    def is_paused(self) -> bool:
        """Whether the process stands still."""
        return self.node is not None and self.node.is_paused

    def start(self) -> None:
        """Starts the broker's process; returns before it serves. Does nothing if it runs already."""
        if self.node is not None:
            return
        self._starts += 1
        self.disk.start_of_process()
        self._killed = self._loop.create_future()
        node = self.node = Node(self.name, self._starts)
        self._trace.note("start", self.name)
        self._network.started(node)
        self._on_start(self.broker_id)
        self._loop.run_as(node, self._launch)

    def _launch(self) -> None:
        for path, content in self._files.items():
            self.disk.put(path, content)
        config = BrokerConfig.single_node(self._settings)
        broker = self.broker = Broker(
            config,
            clock=SimulatedClock(self._loop, up_since_ms=self._up_since_ms, skew_ms=self._skew_ms),
            random=Random(self._source.getrandbits(64)),
            files=self.disk,
        )
        self._on_launch(self.name, broker)
        self._starting = self._loop.create_task(self._serve(broker), name=f"start {self.name}")

    async def _serve(self, broker: Broker) -> None:
        try:
            await broker.start()
        except StartError as error:
            self._trace.note("not started", self.name, str(error))
            self.start_errors.append(error)
            self._end(silently=False)
        else:
            self._trace.note("serves", self.name)
            self._on_serve(self.name, broker)

    async def stop(self) -> None:
        """Stops the broker as SIGTERM does; returns when its process has ended, or was killed meanwhile."""
        node, broker = self.node, self.broker
        if node is None or broker is None:
            return
        assert self._starting is not None
        await asyncio.wait([self._starting, self._killed], return_when=asyncio.FIRST_COMPLETED)
        if node is not self.node:
            return
        stopping = self._loop.run_as(node, self._loop.create_task, broker.stop())
        await asyncio.wait([stopping, self._killed], return_when=asyncio.FIRST_COMPLETED)
        if node is self.node:
            self._trace.note("stopped", self.name)
            self._end(silently=False)

    def kill(self) -> None:
        """Ends the process as kill -9 does: what it wrote is there, its connections are reset."""
        if self.node is not None:
            self._trace.note("kill", self.name)
            self._end(silently=False)

    def cut_power(self) -> None:
        """Ends the machine's power: unsynced writes may be lost, its peers hear nothing, its clock starts anew."""
        if self.node is not None:
            self._trace.note("cut power", self.name)
            self._end(silently=True)
        self.disk = self._watched(self.disk.crash(self._source), self._trace)
        self._up_since_ms = -self._loop.now_us // 1000 + self._source.randrange(2000)

    def lose_power_with_process(self) -> None:
        """If the disk ends the process in the midst of a callback, the machine's power goes."""
        self.disk.on_last_change = lambda: self._loop.run_as(self._loop.simulation, self.cut_power)

    def lose_disk(self) -> None:
        """Puts an empty disk into the machine, whose process has ended."""
        assert self.node is None
        self._trace.note("empty disk", self.name)
        self.disk = self._watched(SimulatedDisk(), self._trace)

    def hang(self, seconds: float) -> None:
        """The thread that calls it gives its result so much later. Nothing, if it is the loop."""
        self._loop.hangs_s = seconds

    def pause(self) -> None:
        """Stops the process as SIGSTOP does."""
        if self.node is not None and not self.node.is_paused:
            self._trace.note("pause", self.name)
            self._loop.pause(self.node)

    def resume(self) -> None:
        """Lets a paused process run on."""
        if self.node is not None and self.node.is_paused:
            self._trace.note("resume", self.name)
            self._loop.resume(self.node)

    def _end(self, *, silently: bool) -> None:
        assert self.node is not None
        self._loop.kill(self.node)
        self._network.ended(self.node, silently=silently)
        self.disk.end_of_process()
        if self.broker is not None:
            self._ended.append(self.broker)
        self.node = self.broker = None
        self._killed.set_result(None)
        self._on_end(self.broker_id)

    def _watched(self, disk: SimulatedDisk, trace: Trace) -> SimulatedDisk:
        disk.on_sync = lambda path: trace.note("sync", path)
        disk.on_last_change = lambda: self._loop.run_as(self._loop.simulation, self.kill)
        return disk

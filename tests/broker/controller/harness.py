"""A controller and its dependencies: a disk in memory, real settings, and a broker that records its requests."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.turns import Turns
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.controller.control_channels import ControlTarget
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.metadata_store.start_up import open_store
from odradek.broker.settings.config import BrokerConfig
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.timer import ManualClock, SystemTimer
from tests.broker.controller.recorded_broker import RecordedBroker
from tests.memory_files import ForgetfulFiles

BROKER_ID = 7
DIRECTORY = "/data"


def store_disk(contents: Mapping[str, bytes] | None = None) -> ForgetfulFiles:
    """Returns a disk with the metadata store's directory and these durable contents by path."""
    files = ForgetfulFiles()
    files.make_directories(DIRECTORY)
    for path, content in (contents or {}).items():
        files.replace_file(path, content)
    files.make_durable()
    return files


def at_once(
    change: Callable[[Mapping[str, str]], dict[str, str]],
) -> Callable[[Mapping[str, str]], Steps[dict[str, str]]]:
    """Returns a change of settings in a single step, in the form that the controller expects."""

    def steps(current: Mapping[str, str]) -> Steps[dict[str, str]]:
        yield from ()
        return change(current)

    return steps


class ControllerHarness:
    """The controller of a single node and its dependencies. `again()` restarts the node after its process has ended in
    any way. `store` may replace the store in `files`.
    """

    def __init__(
        self,
        files: ForgetfulFiles | None = None,
        settings: dict[str, str] | None = None,
        store: MetadataStore | None = None,
    ) -> None:
        self.files = files or store_disk()
        self.settings = {"broker.id": str(BROKER_ID), "log.dirs": DIRECTORY, **(settings or {})}
        self.config = BrokerConfig.from_mapping(self.settings)
        self.clock = ManualClock()
        self.store: Any = store or EmbeddedMetadataStore(DIRECTORY, self.files)
        self.broker = RecordedBroker(BROKER_ID, {})
        self.own: ControlTarget = self.broker
        self.source = random.Random(5)
        self.tasks: list[asyncio.Task[Any]] = []
        self.active_controllers: list[int] = []
        self.timer = SystemTimer(self.clock)
        completions = CompletionQueue(self._call_soon)
        self.purgatory = DelayedOperationPurgatory("topic", self.timer, self.clock, completions)
        self.election_purgatory = DelayedOperationPurgatory("ElectLeader", self.timer, self.clock, completions)
        self.registration = BrokerRegistration(
            self.store, clock=self.clock, session_timeout_ms=6000, spawn=self.spawn, on_registered=self._registered
        )
        self.controller = Controller(
            self.store,
            broker_id=BROKER_ID,
            listener="PLAINTEXT",
            config=self.config,
            clock=self.clock,
            source=self.source,
            spawn=self.spawn,
            turns=Turns(),
            waits=RequestWaits(self.purgatory, self.election_purgatory, self.broker.leader),
            channel_to=lambda _broker: self,
            on_active_controller=self.active_controllers.append,
            first_features={},
            on_features_written=lambda _levels, _epoch: None,
        )

    @staticmethod
    def _call_soon(callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance_clock()

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    def send(self, request: Any, /) -> Awaitable[Any]:
        """See ControlTarget."""
        return self.own.send(request)

    def _registered(self, broker: BrokerInfo) -> None:
        self.broker.broker_epoch = broker.epoch

    @property
    def topics(self) -> dict[str, int]:
        """What this broker knows: the number of partitions by topic."""
        return dict(Counter(key.topic for key in sorted(self.broker.metadata)))

    async def start(self) -> ControllerHarness:
        await self.open()
        await self.start_controller()
        return self

    async def open(self) -> None:
        self.cluster_id = await open_store(self.store, None, self.source)

    async def start_controller(self) -> None:
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092)
        await self.registration.register(BrokerInfo(BROKER_ID, {"PLAINTEXT": endpoint}))
        await self.controller.terms.start(self)

    async def stop(self) -> None:
        """Ends the process in good order."""
        self.registration.stop()
        await self.controller.terms.stop()
        await self.store.close()

    async def changes_done(self) -> None:
        """Waits for the changes that run in the background."""
        await asyncio.gather(*(task for task in self.tasks if task.get_name().startswith(("change", "creation"))))

    async def again(self, settings: dict[str, str] | None = None) -> ControllerHarness:
        return await ControllerHarness(self.files.crash(), settings).start()

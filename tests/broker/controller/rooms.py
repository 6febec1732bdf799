"""A controller and its dependencies: a disk in memory, real settings, and partitions that record their calls."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo, MetadataCache
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.storage.log_config import LogConfig
from odradek.storage.log_creation import NewLog
from odradek.timer import ManualClock, SystemTimer
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


class NotedPartitions:
    """Hooks that record the led partitions by topic id. `failures` are raised when a partition is opened."""

    def __init__(self) -> None:
        self.made: list[TopicPartition] = []
        self.syncs = 0
        self.led: dict[TopicPartition, uuid.UUID] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.configs: dict[str, LogConfig] = {}
        self.removed: list[TopicPartition] = []
        self.failures: dict[TopicPartition, Exception] = {}

    async def make_logs(self, wishes: Iterable[NewLog]) -> dict[TopicPartition, ProtocolError]:
        self.made += [wish.topic_partition for wish in wishes]
        return {}

    async def sync_log_dirs(self) -> None:
        self.syncs += 1

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        log_config: LogConfig,
    ) -> None:
        if topic_partition in self.failures:
            raise self.failures[topic_partition]
        self.led[topic_partition] = topic_id
        self.epochs[topic_partition] = leader_epoch
        self.configs[topic_partition.topic] = log_config

    def stop_replica(self, topic_partition: TopicPartition, delete: bool = False) -> None:
        self.led.pop(topic_partition, None)
        if delete:
            self.removed.append(topic_partition)

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        self.configs[topic] = config


class ControllerRoom:
    """One controller and its dependencies. `again()` restarts the node after its process has ended in any way."""

    def __init__(self, files: ForgetfulFiles | None = None, settings: dict[str, str] | None = None) -> None:
        self.files = files or store_disk()
        self.settings = {"broker.id": str(BROKER_ID), "log.dirs": DIRECTORY, **(settings or {})}
        self.config = BrokerConfig.from_mapping(self.settings)
        self.clock = ManualClock()
        self.partitions = NotedPartitions()
        self.cache = MetadataCache("", BROKER_ID)
        self.store = EmbeddedMetadataStore(DIRECTORY, self.files)
        self.tasks: list[asyncio.Task[Any]] = []
        self.timer = SystemTimer(self.clock)
        self.purgatory = DelayedOperationPurgatory("topic", self.timer, self.clock, CompletionQueue(self._call_soon))
        self.controller = Controller(
            self.store,
            self.cache,
            self.partitions,
            self.config,
            clock=self.clock,
            source=random.Random(5),
            spawn=self.spawn,
            purgatory=self.purgatory,
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

    async def start(self) -> ControllerRoom:
        await self.controller.open_store(None)
        await self.controller.load()
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092)
        await self.controller.start(BrokerInfo(BROKER_ID, {"PLAINTEXT": endpoint}))
        return self

    async def again(self, settings: dict[str, str] | None = None) -> ControllerRoom:
        return await ControllerRoom(self.files.crash(), settings).start()

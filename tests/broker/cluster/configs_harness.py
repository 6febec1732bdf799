"""The dynamic settings of one broker and their dependencies: a store on a disk in memory, real settings, and the log
settings that were applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from uuid import UUID

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.turns import Turns
from odradek.broker.cluster.deltas import ApplyDelta, Deltas
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.cluster.settings_in_effect import SettingsInEffect
from odradek.broker.cluster.user_credentials import UserCredentials
from odradek.broker.metadata.metadata_cache import MetadataCache, PartitionState, TopicMetadata
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.metadata_store.start_up import make_persistent_entries
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.broker.settings.config import BrokerConfig
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.broker.controller.harness import DIRECTORY, store_disk
from tests.memory_files import ForgetfulFiles

Unused: Any = None
TOPIC = TopicMetadata("t", UUID(int=7), {0: PartitionState(0, 1, 0, (1, 2), (1, 2))})


def acls_into(authorizer: AclAuthorizer) -> ApplyDelta:
    """Returns what applies changes of ACLs."""
    return Deltas(Unused, Unused, Unused, Unused, authorizer, Unused, Unused).apply_one


def to(settings: Mapping[str, str]) -> Callable[[Mapping[str, str]], Steps[dict[str, str]]]:
    """Returns the change that replaces all settings."""

    def steps(_current: Mapping[str, str]) -> Steps[dict[str, str]]:
        yield
        return dict(settings)

    return steps


class ConfigsHarness:
    """`applied`: the log settings by topic. `applications`: the topics, in the order in which settings were applied to
    them. The broker knows the topic `t`.
    """

    def __init__(
        self, broker_id: int, store: MetadataStore, clock: ManualClock, settings: Mapping[str, str] | None = None
    ) -> None:
        self.store = store
        self.tasks: list[asyncio.Task[Any]] = []
        self.applied: dict[str, LogConfig] = {}
        self.applications: list[str] = []
        self.config = BrokerConfig.from_mapping({"broker.id": str(broker_id), **(settings or {})})
        self.cache = MetadataCache("", broker_id)
        self.in_effect = SettingsInEffect(self.cache, self.config, self.apply)
        users = UserCredentials(store)
        self.configs = DynamicConfigs(
            store,
            self.cache,
            self.config,
            in_effect=self.in_effect,
            users=users,
            apply=Deltas(self.cache, Unused, self.in_effect, users, None, Unused, Unused).apply_one,
            clock=clock,
            spawn=self.spawn,
            turns=Turns(),
        )

    def apply(self, topic: str, config: LogConfig) -> None:
        self.applied[topic] = config
        self.applications.append(topic)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    async def load(self) -> ConfigsHarness:
        self.cache.put_topic(TOPIC, {})
        await self.configs.load()
        return self

    async def settle(self) -> None:
        while waiting := [task for task in self.tasks if not task.done()]:
            await asyncio.gather(*waiting)


class SingleNode(ConfigsHarness):
    """A broker with a store of its own. `again()` restarts it after its process has ended in any way."""

    def __init__(self, settings: Mapping[str, str] | None = None, files: ForgetfulFiles | None = None) -> None:
        self.files = files or store_disk()
        self.settings = settings
        super().__init__(7, EmbeddedMetadataStore(DIRECTORY, self.files), ManualClock(), settings)

    async def start(self) -> SingleNode:
        await self.store.open()
        await make_persistent_entries(self.store)
        if await self.store.exists(znodes.topic_path("t")) is None:
            await self.store.create(znodes.topic_path("t"), b"{}")
        await self.load()
        return self

    async def again(self) -> SingleNode:
        return await SingleNode(self.settings, self.files.crash()).start()

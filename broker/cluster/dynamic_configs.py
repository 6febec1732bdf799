"""The settings of topics, brokers, users, groups and client metrics in the metadata store: any broker changes them,
every broker applies them.

(A) A change reads the current settings from the store, passes them through the caller's function, and writes the result
    if nothing else has changed the entry meanwhile; otherwise it starts over. While the connection is lost, a change
    waits. If the answer to the write is lost, the entries tell whether it was applied.
(B) Every broker follows the notices below `/config/changes` (store_follower.py). It reads the settings that a new one
    names; what it reads, or has changed itself, is a delta (deltas.py). Of users only their credentials have an effect,
    if a listener has SCRAM (user_credentials.py). Of groups and client metrics see named_settings.py. Settings of
    clients and ips, which have no effect, are not read. A notice that cannot be read or applied is logged.
(C) Settings of a topic are read before the topic is served (`load`, `ensure`). `load` waits while the connection is
    lost; if the store is unavailable to `ensure`, they are read when it is back. After a lost session, everything known
    is read again. Damaged settings are logged, and the defaults apply. Those of a topic that is gone are forgotten, so
    that a new topic of its name is read anew.

Source: Kafka's `DynamicConfigManager`, `ZkConfigManager`, `ZkNodeChangeNotificationListener`, `ZkAdminManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import structlog

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.tasks import Spawn
from odradek.broker.background.turns import Turns
from odradek.broker.cluster.deltas import (
    ApplyDelta,
    BrokerSettings,
    NamedSettingsChanged,
    TopicNews,
    TopicSettings,
    UserSettings,
)
from odradek.broker.cluster.named_settings import FOLDERS, TYPES, NamedSettings, named_path
from odradek.broker.cluster.settings_in_effect import SettingsInEffect
from odradek.broker.cluster.store_follower import StoreFollower
from odradek.broker.cluster.user_credentials import UserCredentials, user_of, user_path
from odradek.broker.controller.topic_operations import encoded_config
from odradek.broker.controller.topic_planner import check_config
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata.topic_names import topic_name_fault
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.entity_names import name_of
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Entry,
    EntryExists,
    MetadataStore,
    MetadataStoreError,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
    StoreUnavailable,
)
from odradek.broker.metadata_store.read_back import multi_or_read_back, retry_until_connected
from odradek.broker.metadata_store.start_up import make_entries
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import ConfigResourceType
from odradek.timer import Clock

ConfigChange = Callable[[Mapping[str, str]], Steps[dict[str, str]]]
"""Maps the current settings to the new ones. Raises ProtocolError if the change is refused."""

TOPICS_PER_READ = 100

log = structlog.get_logger("broker.cluster")


class DynamicConfigs:
    """`apply` applies a delta. Call `load` before anything else, after the store was opened."""

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        config: BrokerConfig,
        *,
        in_effect: SettingsInEffect,
        users: UserCredentials,
        apply: ApplyDelta,
        clock: Clock,
        spawn: Spawn,
        turns: Turns,
    ) -> None:
        self._cache = cache
        self._config = config
        self._in_effect = in_effect
        self._apply = apply
        self._turns = turns
        self.store = store
        self.users = users
        self._named = NamedSettings(store, cache)
        self._unread_topics: dict[str, None] = {}
        """Those that are served with the defaults, because the store was unavailable."""
        self._follower = StoreFollower(
            store,
            "settings",
            {znodes.CONFIG_CHANGES: self._apply_notices},
            read_everything=self._read_everything,
            read_missing=self._read_unread_topics,
            clock=clock,
            spawn=spawn,
            log=log,
        )

    # Reading

    async def load(self) -> None:
        """Reads the settings of all topics and of this broker, in one session, and applies the broker's (C).

        Raises StoreDamaged, and StoreUnavailable if the store is closed.
        """
        await self._follower.load()
        await self._in_effect.apply_to_broker()

    async def ensure(self, topics: Iterable[str]) -> None:
        """Reads the settings of those topics that are not known yet, before they are served (C)."""
        unknown = [name for name in topics if name not in self._in_effect.topics]
        try:
            await self._read_topics(unknown)
        except StoreUnavailable as error:
            log.warning("topic settings not read", topics=unknown, reason=str(error))
            self._unread_topics |= dict.fromkeys(unknown)

    def topic_changed(self, topic: str, news: TopicNews) -> Iterator[None]:
        """See TopicListener. Forgets the settings of a topic that is gone (C)."""
        if news in (TopicNews.DELETED, TopicNews.VANISHED):
            self._in_effect.topics.pop(topic, None)
            self._unread_topics.pop(topic, None)
        return iter(())

    async def _read_everything(self) -> None:
        """Reads all settings at the start; in a later session those of the topics that are known, and applies them."""
        is_again = self._follower.has_loaded
        known = self._in_effect.topics | self._unread_topics
        topics = list(known) if is_again else await self.store.children(znodes.TOPIC_CONFIGS)
        await self._follower.watch()
        for broker_id in (None, self._cache.broker_id):
            self._cache.put_broker_config(broker_id, await self._broker_settings(broker_id))
        if self._config.has_scram:
            await self.users.read_all()
        await self._named.read_all()
        await self._read_topics(topics)
        if is_again:
            await self._in_effect.apply_everywhere()

    async def _read_topics(self, names: Iterable[str]) -> None:
        names = list(names)
        for start in range(0, len(names), TOPICS_PER_READ):
            some = names[start : start + TOPICS_PER_READ]
            entries = await self.store.entries([znodes.topic_config_path(name) for name in some])
            for name, entry in zip(some, entries, strict=True):
                self._in_effect.know(name, {} if entry is None else _topic_config(name, entry))
                self._unread_topics.pop(name, None)

    async def _broker_settings(self, broker_id: int | None) -> dict[str, str]:
        path = znodes.broker_config_path(broker_id)
        entry = await self.store.exists(path)
        try:
            return {} if entry is None else znodes.parse_config(path, entry.data)
        except StoreDamaged as error:
            log.error("stored broker settings ignored", broker=_shown(broker_id), reason=str(error))
            return {}

    # Changing

    async def alter_topic_config(self, topic: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Changes the topic's own settings (A) and applies the result to the topic's logs.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, POLICY_VIOLATION, KAFKA_STORAGE_ERROR, and what `change`
        raises.
        """
        async with self._follower.applying:
            if self._cache.topic(topic) is None:
                raise _unknown(topic)
            path = znodes.topic_config_path(topic)
            after = await self._alter(path, change, validate_only, self._check_topic, Check(znodes.topic_path(topic)))
            if after is not None:
                await self._apply(TopicSettings(topic, after))
                log.info("topic settings changed", topic=topic, config=after)

    async def alter_broker_config(
        self, broker_id: int | None, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Changes a broker's dynamic settings (`broker_id` None: the cluster-wide defaults); `change` validates them.

        Then applies the settings to this broker and the resulting defaults to all logs.
        """
        async with self._follower.applying:
            after = await self._alter(znodes.broker_config_path(broker_id), change, validate_only)
            if after is not None:
                await self._apply(BrokerSettings(broker_id, after))
                log.info("broker settings changed", broker=_shown(broker_id))

    async def alter_user(self, user: str, change: ConfigChange) -> None:
        """Changes the credentials of a user (A), which hold on this broker when this returns."""
        async with self._follower.applying:
            after = await self._alter(user_path(user), change, False)
            if after is not None:
                await self._apply(UserSettings(user, after))
                log.info("credentials changed", user=user, mechanisms=sorted(after))

    async def alter_named_config(
        self, resource_type: ConfigResourceType, name: str, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Changes the settings of a group or of a subscription to client metrics; `change` validates them."""
        async with self._follower.applying:
            path = named_path(resource_type, name)
            if not validate_only:
                await self._make_folder(FOLDERS[resource_type])
            after = await self._alter(path, change, validate_only, is_removed_if_empty=True)
            if after is not None:
                await self._apply(NamedSettingsChanged(resource_type, name, after))
                log.info("settings changed", type=resource_type.name, name=name, config=after)

    async def _make_folder(self, path: str) -> None:
        try:
            await retry_until_connected(self.store, lambda: make_entries(self.store, [path]))
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _alter(
        self,
        path: str,
        change: ConfigChange,
        validate_only: bool,
        check: Callable[[Mapping[str, str]], None] = lambda _: None,
        *conditions: Operation,
        is_removed_if_empty: bool = False,
    ) -> dict[str, str] | None:
        """Returns the new settings, or None if nothing was written."""
        may_be_written = False
        try:
            while True:
                entry = await retry_until_connected(self.store, lambda: self.store.exists(path))
                before = {} if entry is None or entry.data is None else znodes.parse_config(path, entry.data)
                after = await self._turns.take(change(before))
                check(after)
                data = encoded_config(after)
                if validate_only or after == before:
                    return after if may_be_written else None
                write: Operation = Create(path, data) if entry is None else Set(path, data, entry.version)
                if is_removed_if_empty and entry is not None and not after:
                    write = Delete(path, entry.version)
                notices = self._follower.notice(_notice(path))
                try:
                    results = await multi_or_read_back(self.store, [*conditions, write, *notices])
                except (BadVersion, EntryExists):
                    continue
                except NoEntry:
                    if entry is None or not is_removed_if_empty:
                        raise
                    continue
                except ConnectionLost:  # the session has ended
                    may_be_written = True
                    continue
                self._follower.wrote(results)
                return after
        except NoEntry as error:
            raise _unknown(path.rpartition("/")[2]) from error
        except (StoreUnavailable, StoreDamaged) as error:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _check_topic(self, config: Mapping[str, str]) -> None:
        check_config(config, self._config.check_topic_config)

    # Following the changes of all brokers

    async def _read_unread_topics(self) -> None:
        unread = list(self._unread_topics)
        await self._read_topics(unread)
        for name in unread:
            await self._apply(TopicSettings(name, self._cache.topic_config(name)))

    async def _apply_notices(self, paths: Sequence[str]) -> None:
        for path in paths:
            await self._apply_notice(path)

    async def _apply_notice(self, path: str) -> None:
        entry = await self.store.exists(path)
        if entry is None:
            return
        try:
            await self._apply_settings_of(znodes.parse_config_change(path, entry.data))
        except StoreUnavailable:
            raise
        except (MetadataStoreError, ValueError) as error:
            log.error("change of settings ignored", change=path, reason=str(error))

    async def _apply_settings_of(self, changed: znodes.ConfigEntity) -> None:
        """Raises MetadataStoreError, and ValueError for an entity that cannot be."""
        if changed.kind == znodes.TOPIC_ENTITY:
            if (fault := topic_name_fault(changed.name)) is not None:
                raise ValueError(fault)
            await self._read_topics([changed.name])
            await self._apply(TopicSettings(changed.name, self._cache.topic_config(changed.name)))
        elif changed.kind == znodes.BROKER_ENTITY:
            broker_id = None if changed.name == znodes.DEFAULT_BROKER else int(changed.name)
            if broker_id in (None, self._cache.broker_id):
                await self._apply(BrokerSettings(broker_id, await self._broker_settings(broker_id)))
        elif changed.kind == znodes.USER_ENTITY:
            user = user_of(changed.name)
            if self._config.has_scram and user is not None:
                settings = await self.users.stored([user])
                await self._apply(UserSettings(user, settings.get(user, {})))
        elif changed.kind in TYPES and (name := name_of(changed.name)) is not None:
            resource_type = TYPES[changed.kind]
            stored = await self._named.stored(resource_type, name)
            await self._apply(NamedSettingsChanged(resource_type, name, stored))
        elif changed.kind not in znodes.ENTITIES_WITHOUT_EFFECT:
            raise ValueError(f"{changed.kind!r} is not a kind of settings")


def _shown(broker_id: int | None) -> int | str:
    return znodes.DEFAULT_BROKER if broker_id is None else broker_id


def _notice(path: str) -> Create:
    return Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(path), sequential=True)


def _topic_config(topic: str, entry: Entry) -> dict[str, str]:
    try:
        return znodes.parse_config(znodes.topic_config_path(topic), entry.data)
    except StoreDamaged as error:
        log.error("stored topic settings ignored", topic=topic, reason=str(error))
        return {}


def _unknown(topic: str) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")

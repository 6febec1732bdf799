"""What changes in a cluster, as a list of deltas, and what this broker makes of them.

A delta says what is so from now on, and not who has said it: its source is a request of a controller (`changes.py`) or
an entry of the metadata store (`dynamic_configs.py`, `stored_acls.py`, `feature_follower.py`). The list of a request is
an asynchronous generator: the source reads what it needs between two deltas. Settings, ACLs and features come one by
one.

(A) Deltas are applied in their order. A list that has roles has nothing else; its outcome is the error of each
    partition.
(B) A topic is deleted with the last of its partitions, or if a `TopicsListed` does not have it.
(C) When a list is applied, its topics are what clients see, and the listeners hear which of them are new, have more
    partitions or other replicas, or are gone, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from odradek.broker.cluster.settings_in_effect import SettingsInEffect
from odradek.broker.cluster.user_credentials import UserCredentials
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache, PartitionState
from odradek.broker.replica.role_changes import Errors, Role, RoleChanges, Stop
from odradek.protocol.wire_codes import ConfigResourceType

if TYPE_CHECKING:
    from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
    from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer


class BrokersChanged(NamedTuple):
    """`brokers` are all live ones."""

    controller_id: int
    brokers: Iterable[BrokerInfo]


class TopicChanged(NamedTuple):
    """Partitions of a topic are new or have another state (`states`), or are deleted."""

    name: str
    topic_id: UUID
    states: Sequence[PartitionState]
    deleted: Collection[int] = ()


class TopicsListed(NamedTuple):
    """The cluster has no topics but these: others were deleted while this broker was away."""

    names: Collection[str]


class RolesChanged(NamedTuple):
    """This broker leads or follows partitions; with `is_full`, none but these. `lapses` and `settings` are the counts
    of `RoleChanges` and `SettingsInEffect` from before the roles were read: what has changed since counts.
    """

    roles: Sequence[Role]
    is_full: bool
    lapses: int
    settings: int


class RolesEnded(NamedTuple):
    """This broker no longer leads or follows partitions."""

    stops: Sequence[Stop]


class TopicSettings(NamedTuple):
    """A topic's own settings."""

    topic: str
    settings: Mapping[str, str]


class BrokerSettings(NamedTuple):
    """The dynamic settings of this broker, or with None the cluster-wide defaults."""

    broker_id: int | None
    settings: Mapping[str, str]


class UserSettings(NamedTuple):
    """A user's settings, which have the credentials."""

    user: str
    settings: Mapping[str, str]


class NamedSettingsChanged(NamedTuple):
    """The settings of a group, or of a subscription to client metrics."""

    resource_type: ConfigResourceType
    name: str
    settings: Mapping[str, str]


class AclsChanged(NamedTuple):
    """The ACLs of one resource pattern."""

    pattern: ResourcePattern
    acls: frozenset[AccessControlEntry]


class FeaturesChanged(NamedTuple):
    """The finalized levels of the cluster's features; `epoch` is the version of their entry."""

    levels: Mapping[str, int]
    epoch: int


SingleDelta = TopicSettings | BrokerSettings | UserSettings | NamedSettingsChanged | AclsChanged | FeaturesChanged
ApplyDelta = Callable[[SingleDelta], Awaitable[None]]
Delta = BrokersChanged | TopicChanged | TopicsListed | RolesChanged | RolesEnded


class TopicNews(Enum):
    """What has become of a topic."""

    CREATED = "it is new, or replaces another one of its name"
    EXTENDED = "it has more partitions"
    MOVED = "partitions have other replicas"
    DELETED = "it was deleted"
    VANISHED = "it was deleted while this broker was away"


class TopicListener(Protocol):
    """Called after the metadata has changed (C)."""

    def topic_changed(self, topic: str, news: TopicNews) -> Iterator[None]:
        """Does what follows from it, in steps. The next change of the cluster waits for the end."""


class ClusterListener(TopicListener, Protocol):
    """Hears of brokers, too."""

    def brokers_changed(self) -> object:
        """The live brokers may be others, or other than they were."""


class Deltas:
    """Applies deltas, one list at a time. `authorizer`: None for no access control. `brokers_changed` is called when
    the live brokers may have changed.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        roles: RoleChanges,
        settings: SettingsInEffect,
        users: UserCredentials,
        authorizer: AclAuthorizer | None,
        features: FinalizedFeatures,
        brokers_changed: Callable[[], object],
    ) -> None:
        self._metadata = metadata
        self._roles = roles
        self._settings = settings
        self._users = users
        self._authorizer = authorizer
        self._features = features
        self.listeners: list[TopicListener] = []
        self._brokers_changed = brokers_changed

    async def apply_one(self, delta: SingleDelta) -> None:
        """Applies a change of settings, ACLs or features."""
        match delta:
            case TopicSettings():
                self._settings.topic_changed(delta.topic, delta.settings)
            case BrokerSettings():
                await self._settings.broker_changed(delta.broker_id, delta.settings)
            case UserSettings():
                self._users.put(delta.user, delta.settings)
            case NamedSettingsChanged():
                self._metadata.put_named_config(delta.resource_type, delta.name, delta.settings)
            case AclsChanged():
                assert self._authorizer is not None, "only an authorizer has ACLs followed"
                self._authorizer.put(delta.pattern, delta.acls)
            case FeaturesChanged():
                self._features.put(delta.levels, delta.epoch)

    async def apply(self, deltas: AsyncIterable[Delta]) -> Errors:
        """Returns the outcomes of roles."""
        metadata = self._metadata
        news: dict[str, TopicNews] = {}
        errors: Errors = {}
        is_complete = metadata.is_complete
        async for delta in deltas:
            match delta:
                case RolesChanged():
                    errors |= await self._change_roles(delta)
                case RolesEnded():
                    errors |= await self._roles.stop(delta.stops)
                case BrokersChanged():
                    metadata.controller_id = delta.controller_id
                    metadata.put_brokers(delta.brokers)
                    self._brokers_changed()
                case TopicChanged():
                    self._change_topic(delta, news)
                    is_complete = True
                case TopicsListed():
                    self._remove_others(delta.names, news)
                    is_complete = is_complete or not delta.names
        metadata.is_complete = metadata.is_complete or is_complete
        await self._spread(news)
        return errors

    async def _change_roles(self, delta: RolesChanged) -> Errors:
        if delta.is_full:
            await self._roles.stop_others(delta.roles)
        errors = await self._roles.change(delta.roles, delta.lapses)
        if self._settings.changes != delta.settings:
            await self._settings.apply_again(dict.fromkeys(role.topic_partition.topic for role in delta.roles))
        return errors

    def _change_topic(self, delta: TopicChanged, news: dict[str, TopicNews]) -> None:
        metadata = self._metadata
        known = metadata.topic(delta.name)
        if known is not None and known.topic_id != delta.topic_id:
            known = None
        states = {
            state.partition: state for state in delta.states if known is None or not self._is_late(delta.name, state)
        }
        if states:
            metadata.put_partitions(delta.name, delta.topic_id, states)
            if known is None:
                news[delta.name] = TopicNews.CREATED
            elif not states.keys() <= known.partitions.keys():
                news[delta.name] = TopicNews.EXTENDED
            elif any(state.replicas != known.partitions[number].replicas for number, state in states.items()):
                news.setdefault(delta.name, TopicNews.MOVED)
        if delta.deleted and metadata.remove_partitions(delta.name, delta.deleted):
            news[delta.name] = TopicNews.DELETED

    def _is_late(self, topic: str, state: PartitionState) -> bool:
        """Whether a newer state of the partition is known."""
        known = self._metadata.partition(topic, state.partition)
        return known is not None and (known.leader_epoch, known.partition_epoch) > (
            state.leader_epoch,
            state.partition_epoch,
        )

    def _remove_others(self, names: Collection[str], news: dict[str, TopicNews]) -> None:
        for name in self._metadata.topic_names():
            if name not in names:
                self._metadata.remove_topic(name)
                news[name] = TopicNews.VANISHED

    async def _spread(self, news: dict[str, TopicNews]) -> None:
        for topic, what in news.items():
            for listener in self.listeners:
                for _ in listener.topic_changed(topic, what):
                    await asyncio.sleep(0)

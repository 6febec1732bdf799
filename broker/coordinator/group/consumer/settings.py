"""The settings of one consumer group in effect: its own, kept within the broker's bounds, or else the broker's.

Times in ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import structlog

from odradek.broker.settings import OwnGroupSettings
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.group_values import own_value
from odradek.broker.settings.rules import Assignors

OWN = (
    OwnGroupSettings.consumer_session_timeout_ms,
    OwnGroupSettings.consumer_heartbeat_interval_ms,
    OwnGroupSettings.consumer_assignment_interval_ms,
)
"""The settings that a group may have of its own."""

log = structlog.get_logger("coordinator.group")


class MigrationPolicy(Enum):
    """How groups may change their protocol while they have members. (group.consumer.migration.policy)"""

    def __init__(self, upgrades: bool, downgrades: bool) -> None:
        self.upgrades = upgrades
        self.downgrades = downgrades

    DISABLED = False, False
    UPGRADE = True, False
    DOWNGRADE = False, True
    BIDIRECTIONAL = True, True


class ConsumerGroupSettings(NamedTuple):
    """Kafka's settings, named without the prefix `group.consumer.`.

    `assignors`: the names of the known ones; the first is the one of groups whose members want none. A setting of the
    group itself takes the place of the broker's for both intervals and for the session timeout. `classic_max_size`:
    group.max.size.
    """

    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    regex_refresh_interval_ms: int
    max_size: int
    migration_policy: MigrationPolicy
    classic_max_size: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ConsumerGroupSettings:
        return cls(
            tuple(dict.fromkeys(Assignors.CLASSES.get(name, name) for name in config.group_consumer_assignors)),
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_regex_refresh_interval_ms,
            config.group_consumer_max_size,
            MigrationPolicy[config.group_consumer_migration_policy.upper()],
            config.group_max_size,
        )


class GroupSettingsInEffect:
    """`own` has the settings of the groups that have any, by group id; a change replaces those of a group."""

    def __init__(self, config: BrokerConfig, own: Mapping[str, Mapping[str, str]]) -> None:
        self._config = config
        self._own = own
        self._of_broker = ConsumerGroupSettings.from_config(config)
        self._of_groups: dict[str, tuple[Mapping[str, str], ConsumerGroupSettings]] = {}
        """Of those with settings of their own, which they are made from."""
        config.on_change(self._broker_changed)

    def of(self, group_id: str) -> ConsumerGroupSettings:
        """Returns the present settings of a group."""
        own = self._own.get(group_id)
        if own is None:
            self._of_groups.pop(group_id, None)
            return self._of_broker
        known = self._of_groups.get(group_id)
        if known is None or known[0] is not own:
            known = self._of_groups[group_id] = own, self._with(group_id, own)
        return known[1]

    def _with(self, group_id: str, own: Mapping[str, str]) -> ConsumerGroupSettings:
        values = {setting.name: own_value(setting, own, self._config) for setting in OWN}
        if adjusted := [name for name, (_, is_adjusted) in values.items() if is_adjusted]:
            log.warning("settings of a group are outside the broker's bounds", group=group_id, names=adjusted)
        session, heartbeat, assignment = (value for value, _ in values.values())
        return self._of_broker._replace(
            session_timeout_ms=session, heartbeat_interval_ms=heartbeat, assignment_interval_ms=assignment
        )

    def _broker_changed(self, _names: frozenset[str]) -> None:
        self._of_broker = ConsumerGroupSettings.from_config(self._config)
        self._of_groups.clear()

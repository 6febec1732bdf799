"""The settings of one consumer group in effect. Times in ms."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.settings.rules import Assignors

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig


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

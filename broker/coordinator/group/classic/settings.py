"""The settings of classic groups. Times in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig


class GroupSettings(NamedTuple):
    """Kafka's settings, named without the prefix `group.`."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int
    initial_rebalance_delay_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_max_size,
            config.group_initial_rebalance_delay_ms,
        )

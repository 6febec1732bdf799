"""The settings of classic groups. Times in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig


class GroupSettings(NamedTuple):
    """Kafka's settings, named without the prefix `group.`."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_max_size,
            config.group_initial_rebalance_delay_ms,
        )

"""The settings that fetchers read, under Kafka's names; sizes in bytes, times in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig


class FetchLimits(NamedTuple):
    """How much one fetch may return, and how long it may wait for it."""

    max_bytes: int
    max_wait_ms: int


class FetcherSettings(NamedTuple):
    """`broker_id` is this broker's; the other fields are settings."""

    broker_id: int
    num_replica_fetchers: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_socket_timeout_ms: int

    @property
    def limits(self) -> FetchLimits:
        """The limits of a fetch that no quota concerns."""
        return FetchLimits(self.replica_fetch_response_max_bytes, self.replica_fetch_wait_max_ms)

    @classmethod
    def from_config(cls, config: BrokerConfig) -> FetcherSettings:
        return cls(**{name: getattr(config, name) for name in cls._fields})

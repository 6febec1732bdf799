"""The settings of one consumer group in effect. Times in ms."""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupSettings(NamedTuple):
    """Kafka's settings, named without the prefix `group.consumer.`.

    `assignors`: the names of the known ones; the first is the one of groups whose members want none. A setting of the
    group itself takes the place of the broker's for both intervals and for the session timeout.
    """

    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    regex_refresh_interval_ms: int
    max_size: int

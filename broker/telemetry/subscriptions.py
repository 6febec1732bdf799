"""The subscriptions to client metrics, as their settings say, and what of them concerns one client.

(A) A subscription concerns a client if all of its patterns match, each the whole of a value. A client that does not
    have the value is not matched. Of two patterns for the same value the last one counts.
(B) A client pushes the metrics of all its subscriptions, at the shortest of their intervals and of DEFAULT_INTERVAL_MS.
    `*` among them stands for all.
(C) The id of what a client pushes is a checksum of the metrics and the interval, XORed with the hash of the client
    instance's id. All brokers compute the same, so that a client may ask one broker and push to another.

Source: Kafka's `ClientMetricsManager`, `ClientMetricsConfigs`. Kafka orders the metrics as a Java set does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from crc32c import crc32c

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.regular_expressions import compiled, items_of, items_of_match, matches
from odradek.broker.settings import OwnClientMetricsSettings, parse_value
from odradek.broker.settings.client_metrics import check_client_metrics
from odradek.broker.settings.setting import rows
from odradek.protocol.errors import ProtocolError
from odradek.protocol.primitives import uuid_hash

ALL_METRICS = "*"
OWN = tuple(rows(OwnClientMetricsSettings))
DEFAULT_INTERVAL_MS = OwnClientMetricsSettings.interval_ms.default

log = structlog.get_logger("broker.telemetry")

Configs = Callable[[], tuple[int, Mapping[str, Mapping[str, str]]]]
"""Returns the settings of all subscriptions by name, and a number that grows when any of them changes."""


class Subscription(NamedTuple):
    """One subscription. `config`: the settings that it is made from."""

    config: Mapping[str, str]
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any]
    """Compiled expressions by the name of the value that each must match (A)."""

    def concerns(self, client: Mapping[str, str | None]) -> bool:
        """Whether it concerns a client with these values (A). Raises as `matches` does."""
        for name, pattern in self.patterns.items():
            value = client[name]
            if value is None or not matches(pattern, value):
                return False
        return True

    def items_for(self, client: Mapping[str, str | None]) -> int:
        """Returns how many items of a step that counts as."""
        return sum(items_of_match(pattern, client[name] or "") for name, pattern in self.patterns.items())


class Wanted(NamedTuple):
    """What one client is to push (B)."""

    metrics: tuple[str, ...]
    interval_ms: int

    def id_for(self, client_instance_id: UUID) -> int:
        """The id of the subscription (C): an int32."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        return _int32(crc32c(text.encode())) ^ uuid_hash(client_instance_id)


class Subscriptions:
    """All subscriptions, parsed when they are first needed after a change. `version` grows with each change."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._seen = -1
        self._by_name: dict[str, Subscription] = {}
        self._wanted: dict[Wanted, Wanted] = {}
        """Clients that are to push the same share it."""
        self.version = 0

    def refresh(self) -> Steps[None]:
        """Takes over the changes of the settings since the last call."""
        seen, configs = self._configs()
        if seen == self._seen:
            return
        pace = Pace()
        found: dict[str, Subscription] = {}
        for name, config in list(configs.items()):
            subscription = self._by_name.get(name)
            cost = 1
            if subscription is None or subscription.config is not config:
                subscription = _parsed(name, config)
                cost = sum(map(items_of, config.values()))
            found[name] = subscription
            if pace.step_ends(cost):
                yield
        if found != self._by_name:
            self.version += 1
            self._wanted.clear()
        self._by_name, self._seen = found, seen

    def wanted(self, client: Mapping[str, str | None]) -> Steps[Wanted]:
        """Returns what a client with these values is to push (B). Raises as `matches` does."""
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        pace = Pace()
        for subscription in list(self._by_name.values()):
            if subscription.concerns(client):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
            if pace.step_ends(1 + subscription.items_for(client) + len(subscription.metrics)):
                yield
        wanted = Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)
        return self._wanted.setdefault(wanted, wanted)


def _parsed(name: str, config: Mapping[str, str]) -> Subscription:
    """Settings that cannot be used, which an older release has stored, ask for nothing."""
    try:
        check_client_metrics(config)
    except ProtocolError as error:
        log.error("stored subscription to client metrics ignored", name=name, reason=error.error_message)
        return Subscription(config, (), DEFAULT_INTERVAL_MS, {})
    own = OwnClientMetricsSettings(
        {row.name: parse_value(row, config[row.name]) if row.name in config else row.default for row in OWN}
    )
    patterns = (pattern.partition("=") for pattern in own.match)
    expressions = {value.strip(): compiled(expression.strip()) for value, _, expression in patterns}
    return Subscription(config, tuple(own.metrics), own.interval_ms, expressions)


def _int32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value

"""`/api/settings`: the broker's settings that differ from their defaults, as in DescribeConfigs: without secrets."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.queries import Query
from odradek.broker.console.selection import ITEMS_PER_ROW, Row, listing, rows_of, select, shown
from odradek.broker.metrics.sources import MetricSources
from odradek.broker.settings import BROKER, value_text
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.config_description import (
    ConfigDescription,
    ConfigSource,
    describe_broker_setting,
    shown_settings,
)


def settings_of(config: BrokerConfig) -> Callable[[MetricSources, Query], Steps[Row]]:
    """Returns the view of these settings."""

    def settings(_sources: MetricSources, query: Query) -> Steps[Row]:
        changed = []
        pace = Pace()
        for name in sorted(shown_settings(config)):
            description = describe_broker_setting(config, name)
            if _differs(description):
                changed.append(description)
            if pace.step_ends(ITEMS_PER_ROW):
                yield
        selection = yield from select(changed, lambda description: description.name, query)
        rows = yield from rows_of(selection, _row)
        return listing(query, selection, rows)

    return settings


def _differs(description: ConfigDescription) -> bool:
    """Whether a value was given, and is another one than the default; one that is hidden counts as different."""
    if description.source is ConfigSource.DEFAULT_CONFIG:
        return False
    return description.is_sensitive or description.value != _default(description.name)


def _default(name: str) -> str | None:
    return value_text(BROKER[name].default) if name in BROKER else None


def _row(description: ConfigDescription) -> Row:
    default = None if description.is_sensitive else _default(description.name)
    return {
        "name": shown(description.name),
        "value": None if description.value is None else shown(description.value),
        "default": None if default is None else shown(default),
        "is_sensitive": description.is_sensitive,
        "source": description.source.name,
        "documentation": description.documentation,
    }

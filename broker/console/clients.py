"""`/api/clients`: the clients that push metrics of their own; `/api/series`: what one of them has pushed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from odradek.broker.background.stepwise import Steps
from odradek.broker.console.queries import BadQuery, Query
from odradek.broker.console.selection import Row, Selection, listing, rows_of, select, shown
from odradek.broker.metrics.sources import MetricSources

if TYPE_CHECKING:
    from odradek.broker.telemetry.client_instances import ClientInstance
    from odradek.broker.telemetry.client_series import ClientMetric, Value
    from odradek.broker.telemetry.otlp import Labels

    OneSeries = tuple[ClientMetric, Labels, Value]

SEARCHED = ("client_id", "client_instance_id", "client_software_name", "client_software_version")
MOST_WANTED = 10
"""How many metrics of a subscription are named."""


def clients(sources: MetricSources, query: Query) -> Steps[Row]:
    """A search looks at the client id, the id of the instance and the client's software."""
    telemetry = sources.telemetry
    if telemetry is None:
        return listing(query, Selection([], 0, 0), [])
    selection = yield from select(telemetry.instances, _name, query)
    now_ms, size_of = sources.timer.clock.now_ms(), telemetry.series.size_of
    rows = yield from rows_of(selection, lambda instance: _row(instance, size_of(instance.uuid), now_ms))
    return listing(query, selection, rows)


def series(sources: MetricSources, query: Query) -> Steps[Row]:
    """A search looks at the metric's name and its labels. Raises BadQuery for an instance that is unknown."""
    telemetry = sources.telemetry
    instance = None if telemetry is None else telemetry.instances.named(query.name)
    if telemetry is None or instance is None:
        raise BadQuery(f"There is no client instance {query.name[:50]!r}")
    selection = yield from select(telemetry.series.of_client(instance.uuid), _series_name, query)
    rows = yield from rows_of(selection, _series_row)
    return listing(query, selection, rows)


def _name(instance: ClientInstance) -> str:
    values = instance.values
    return " ".join(filter(None, (values[name] for name in SEARCHED)))


def _row(instance: ClientInstance, series: int, now_ms: int) -> Row:
    values, expiration = instance.values, instance.expiration
    client_id = values["client_id"]
    return {
        "name": values["client_instance_id"],
        "client_id": None if client_id is None else shown(client_id),
        "software": values["client_software_name"],
        "software_version": values["client_software_version"],
        "address": f"{values['client_source_address']}:{values['client_source_port']}",
        "attributes": dict(instance.attributes),
        "metrics": [shown(each) for each in instance.wanted.metrics[:MOST_WANTED]],
        "metrics_left_off": max(len(instance.wanted.metrics) - MOST_WANTED, 0),
        "interval_ms": instance.wanted.interval_ms,
        "pushed_ms_ago": None if instance.pushed_ms is None else max(now_ms - instance.pushed_ms, 0),
        "series": series,
        "forgotten_in_ms": None if expiration is None else max(expiration.expiration_ms - now_ms, 0),
    }


def _series_name(series: OneSeries) -> str:
    metric, labels, _ = series
    return f"{metric.name} {_text(labels)}"


def _series_row(series: OneSeries) -> Row:
    """What is not finite is null, as JSON has no such number."""
    metric, labels, value = series
    row: Row = {"name": metric.name, "kind": metric.kind, "labels": dict(labels), "value": None}
    if isinstance(value, float):
        return {**row, "value": _finite(value)}
    return {**row, "count": sum(value.counts), "sum": _finite(value.total)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(labels: Labels) -> str:
    return " ".join(f"{name}={value}" for name, value in labels)

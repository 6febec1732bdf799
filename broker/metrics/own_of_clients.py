"""The clients' own metrics in `/metrics`: each with the labels `client_id` and `client_instance_id`, and those that the
client has given it.

`odradek_client_instance` has one row for each client, with what else is known of it and what it says of itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.broker.logging.printable import printable
from odradek.broker.metrics.families import Sample
from odradek.broker.telemetry.client_instances import ClientInstance
from odradek.broker.telemetry.client_series import ClientMetric
from odradek.broker.telemetry.client_telemetry import ClientTelemetry
from odradek.broker.telemetry.otlp import Buckets

INSTANCE = "odradek_client_instance"
OWNER_LABELS = ("client_id", "client_instance_id")
INSTANCE_LABELS = (*OWNER_LABELS, "client_software_name", "client_software_version", "client_source_address")


class OwnOfClients(NamedTuple):
    """One metric of clients. A counter's name omits the suffix `_total`."""

    name: str
    documentation: str
    kind: str
    samples: Iterable[Sample]


def own_of_clients(telemetry: ClientTelemetry) -> Iterator[OwnOfClients]:
    instances = (
        (INSTANCE, {**dict(each.attributes), **labels_of(each, INSTANCE_LABELS)}, 1.0) for each in telemetry.instances
    )
    yield OwnOfClients(INSTANCE, "Clients that may push metrics of their own.", "gauge", instances)
    for metric in telemetry.series.metrics:
        documentation = f"A {metric.kind} that clients have pushed."
        yield OwnOfClients(metric.name, documentation, metric.kind, _samples(metric, telemetry))


def labels_of(instance: ClientInstance, names: Iterable[str]) -> dict[str, str]:
    """Returns what is known of a client by the names of labels."""
    values = ((name, instance.values[name]) for name in names)
    return {name: printable(value) for name, value in values if value}


def _samples(metric: ClientMetric, telemetry: ClientTelemetry) -> Iterator[Sample]:
    for client, own_labels, value in metric.series():
        instance = telemetry.instances.get(client)
        if instance is None:
            continue
        labels = {**labels_of(instance, OWNER_LABELS), **dict(own_labels)}
        if isinstance(value, Buckets):
            yield from _buckets(metric.name, labels, value)
        else:
            yield (f"{metric.name}_total" if metric.kind == "counter" else metric.name), labels, value


def _buckets(name: str, labels: dict[str, str], value: Buckets) -> Iterator[Sample]:
    """A bucket of Prometheus counts the values of those before it, too."""
    bounds = (*map(str, value.bounds), "+Inf")
    for bound, count in zip(bounds, itertools.accumulate(value.counts), strict=True):
        yield f"{name}_bucket", {**labels, "le": bound}, count
    yield f"{name}_sum", labels, value.total
    yield f"{name}_count", labels, sum(value.counts)

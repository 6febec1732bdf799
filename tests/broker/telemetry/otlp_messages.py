"""What clients push, made by protobuf itself, and what real clients have pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
RECORDED = Path(__file__).with_name("pushed")
"""Pushes of real clients with the subscription `*`, as Apache Kafka 4.4.0 gave them to a plugin, decompressed."""


def metrics_data(*metrics: Metric, resource: Mapping[str, Any] | None = None) -> bytes:
    data = MetricsData()
    of_resource = data.resource_metrics.add()
    add_attributes(of_resource.resource.attributes, resource or {})
    of_resource.scope_metrics.add().metrics.extend(metrics)
    return bytes(data.SerializeToString())


def gauge(name: str, *values: float, **labels: Any) -> Metric:
    """A gauge with one point for each value, all with the same labels."""
    metric = Metric(name=name)
    _add_numbers(metric.gauge, values, labels)
    return metric


def total(name: str, *values: float, temporality: Any = DELTA, monotonic: bool = True, **labels: Any) -> Metric:
    """A sum, as `gauge`."""
    metric = Metric(name=name)
    metric.sum.aggregation_temporality = temporality
    metric.sum.is_monotonic = monotonic
    _add_numbers(metric.sum, values, labels)
    return metric


def histogram(
    name: str,
    bounds: Sequence[float],
    counts: Sequence[int],
    of_all: float = 0.0,
    *,
    temporality: Any = DELTA,
    **labels: Any,
) -> Metric:
    metric = Metric(name=name)
    metric.histogram.aggregation_temporality = temporality
    point = metric.histogram.data_points.add(
        explicit_bounds=bounds, bucket_counts=counts, sum=of_all, count=sum(counts)
    )
    add_attributes(point.attributes, labels)
    return metric


def _add_numbers(measured: Any, values: Sequence[float], labels: Mapping[str, Any]) -> None:
    for value in values:
        point = measured.data_points.add()
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        add_attributes(point.attributes, labels)


def add_attributes(attributes: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        of_key = attributes.add(key=key).value
        for kind, field in ((bool, "bool_value"), (int, "int_value"), (float, "double_value"), (str, "string_value")):
            if isinstance(value, kind):
                setattr(of_key, field, value)
                break
        else:
            of_key.bytes_value = value

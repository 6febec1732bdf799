"""From what a client pushes to points: OTLP's MetricsData, whose metrics are read one by one.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > data points

(A) Two bytes of a push can be a message, which takes fifty bytes and more in memory. So the three outer levels are
    walked here, field by field, and only single resources and metrics of bounded size become objects of protobuf.
(B) Bytes that are no MetricsData fail as a whole. What is one, but is too long, of no use, or of a kind that clients do
    not push (summaries, exponential histograms), is left out and counted.
(C) Names become those of Prometheus: `org.apache.kafka.producer.record.send.total` is the counter
    `kafka_client_producer_record_send_total`. The attributes of a point become labels, and those of a resource labels
    of the client: a consumer's member id is among them, which changes.
(D) A sum that only grows is a counter, another sum a gauge. A gauge may be NaN, as those of Java's clients are before
    the first value; a sum or a bucket may not.

Source: KIP-714; opentelemetry-proto's metrics.proto.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from operator import lt
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.logging.printable import printable

MOST_METRIC_BYTES = 65536
MOST_RESOURCE_BYTES = 4096
MOST_FIELDS = 20_000
"""Of the outer levels of one push. Further ones are not looked at, nor is what comes after MOST_POINTS."""
MOST_POINTS = 1000
MOST_BUCKETS = 100
LONGEST_NAME = 200
MOST_LABELS = 8
LONGEST_LABELS = 512
"""The characters of all labels of a point, or of a client, with their values."""
ITEMS_PER_METRIC = 10
ITEMS_PER_POINT = 5
BYTES_PER_ITEM = 256

PREFIX = "kafka_client_"
OWN_NAMES = "org.apache.kafka."
TAKEN_LABELS = frozenset({"client_id", "client_instance_id", "le", "quantile"})
_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_SIMPLE = frozenset({"string_value", "bool_value", "int_value", "double_value"})
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA

# Fields of the messages of (A), and protobuf's wire types.
_RESOURCE_METRICS = 1
_RESOURCE, _SCOPE_METRICS = 1, 2
_METRICS = 2
_NOT_BYTES = 0
"""In place of the number of a field that is no message."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10

Labels = tuple[tuple[str, str], ...]


class Part(Enum):
    """What a field of the outer levels is."""

    RESOURCE = "what all metrics of a client have in common"
    METRIC = "a metric with its points"
    OTHER = "a level, or of no use"


class Undecodable(Exception):
    """The bytes are no MetricsData."""


class Buckets(NamedTuple):
    """A histogram: the upper bounds of its buckets but the last, how many values each has, and the sum of all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Point(NamedTuple):
    """One value of one metric, named for Prometheus (C). `is_delta`: it adds to the one before. A counter's name omits
    the suffix `_total`.
    """

    name: str
    kind: str
    labels: Labels
    value: float | Buckets
    is_delta: bool


class Pushed(NamedTuple):
    """What a push contains. `left_out` counts the points and metrics of (B). `attributes`: of the last resource that
    has any.
    """

    points: list[Point]
    left_out: int
    attributes: Labels


def decoded(data: bytes) -> Steps[Pushed]:
    """Raises Undecodable (B)."""
    pace = Pace()
    points: list[Point] = []
    left_out = 0
    attributes: Labels = ()
    for part, content in islice(_parts(memoryview(data)), MOST_FIELDS):
        cost = 1
        if part is Part.RESOURCE:
            attributes = _labels_of_resource(content) or attributes
        elif part is Part.METRIC:
            more, not_usable = _points(content)
            points += more
            left_out += not_usable
            cost = ITEMS_PER_METRIC + len(content) // BYTES_PER_ITEM + ITEMS_PER_POINT * (len(more) + not_usable)
        if len(points) >= MOST_POINTS:
            return Pushed(points[:MOST_POINTS], left_out + len(points) - MOST_POINTS, attributes)
        if pace.step_ends(cost):
            yield
    return Pushed(points, left_out, attributes)


# --- the outer levels -----------------------------------------------------------------------------------------------


def _parts(data: memoryview) -> Iterator[tuple[Part, memoryview]]:
    """Yields each field of the outer levels (A). Raises Undecodable."""
    for number, resource_metrics in _fields(data):
        yield Part.OTHER, resource_metrics
        for inner, part in _fields(resource_metrics) if number == _RESOURCE_METRICS else ():
            yield Part.RESOURCE if inner == _RESOURCE else Part.OTHER, part
            for innermost, metric in _fields(part) if inner == _SCOPE_METRICS else ():
                yield Part.METRIC if innermost == _METRICS else Part.OTHER, metric


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yields the number and the content of each field. Raises Undecodable."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        start = position
        if wire_type == _BYTES:
            size, start = _varint(message, position)
            position = start + size
        elif wire_type == _VARINT:
            _, position = _varint(message, position)
        elif wire_type == _FIXED64:
            position += 8
        elif wire_type == _FIXED32:
            position += 4
        else:
            raise Undecodable(f"wire type {wire_type}")
        if position > end or not number:
            raise Undecodable("a field that does not end, or has no number")
        yield number if wire_type == _BYTES else _NOT_BYTES, message[start:position]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Returns the value and the position behind it. Raises Undecodable."""
    value = shift = 0
    for byte in data[position : position + _LONGEST_VARINT]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise Undecodable("a number that does not end")


# --- metrics --------------------------------------------------------------------------------------------------------


def _points(data: memoryview) -> tuple[list[Point], int]:
    """Returns the points of a metric, and how many are left out. Raises Undecodable."""
    if len(data) > MOST_METRIC_BYTES:
        return [], 1
    metric = _message(Metric, data)
    kind: str | None = metric.WhichOneof("data")
    if kind is None or kind not in _VALUE_OF:
        return [], 1
    measured = getattr(metric, kind)
    sent = measured.data_points
    name = _shown_name(metric.name)
    temporality = _CUMULATIVE if kind == "gauge" else measured.aggregation_temporality
    if name is None or temporality not in (_CUMULATIVE, _DELTA) or len(sent) > MOST_POINTS:
        return [], len(sent)
    shown_kind = kind
    if kind == "sum":
        shown_kind = "counter" if measured.is_monotonic else "gauge"
    if shown_kind == "counter":
        name = name.removesuffix("_total")
    points = []
    for each in sent:
        value, labels = _VALUE_OF[kind](each), _labels(each.attributes)
        if value is None or labels is None or (shown_kind == "counter" and value < 0):
            continue
        points.append(Point(name, shown_kind, labels, value, temporality == _DELTA))
    return points, len(sent) - len(points)


def _message(message: Any, data: memoryview) -> Any:
    """Returns a message of this class of protobuf, which has no types. Raises Undecodable."""
    try:
        return message.FromString(bytes(data))
    except DecodeError as error:
        raise Undecodable(str(error)) from None


def _shown_name(name: str) -> str | None:
    """(C)"""
    name = name.removeprefix(OWN_NAMES)
    return PREFIX + _UNFIT.sub("_", name) if name and len(name) <= LONGEST_NAME else None


def _gauge(point: NumberDataPoint) -> float | None:
    field = point.WhichOneof("value")
    return None if field is None else float(getattr(point, field))


def _sum(point: NumberDataPoint) -> float | None:
    value = _gauge(point)
    return value if value is not None and math.isfinite(value) else None


def _buckets(point: HistogramDataPoint) -> Buckets | None:
    bounds, counts = tuple(point.explicit_bounds), tuple(point.bucket_counts) or (point.count,)
    is_ordered = all(map(math.isfinite, bounds)) and all(map(lt, bounds, bounds[1:]))
    if len(bounds) > MOST_BUCKETS or len(counts) != len(bounds) + 1 or not is_ordered or not math.isfinite(point.sum):
        return None
    return Buckets(bounds, counts, point.sum)


_VALUE_OF: Mapping[str, Callable[[Any], Any]] = {"gauge": _gauge, "sum": _sum, "histogram": _buckets}
"""By the kind of a metric: returns the value of a point, None if it has no use (D)."""


# --- labels ---------------------------------------------------------------------------------------------------------


def _labels_of_resource(data: memoryview) -> Labels | None:
    if len(data) > MOST_RESOURCE_BYTES:
        return None
    return _labels(_message(Resource, data).attributes)


def _labels(attributes: Sequence[KeyValue]) -> Labels | None:
    """Returns labels, by name; None if they are too many, too long, or no simple values."""
    if len(attributes) > MOST_LABELS:
        return None
    labels = {}
    for attribute in attributes:
        field = attribute.value.WhichOneof("value")
        if field not in _SIMPLE or not attribute.key:
            return None
        text = str(getattr(attribute.value, field))
        if len(attribute.key) + len(text) > LONGEST_LABELS:
            return None
        labels[_label_name(attribute.key)] = printable(text)
    if sum(len(name) + len(value) for name, value in labels.items()) > LONGEST_LABELS:
        return None
    return tuple(sorted(labels.items()))


def _label_name(key: str) -> str:
    """A label that Prometheus or this broker gives a meaning becomes `exported_...`, as in Prometheus."""
    name = _UNFIT.sub("_", key)
    return f"exported_{name}" if name in TAKEN_LABELS or name.startswith("__") or name[0].isdigit() else name

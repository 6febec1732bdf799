"""From the bytes of a push to points: names, kinds and labels for Prometheus, within bounds."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from odradek.broker.background.stepwise import finished
from odradek.broker.telemetry import otlp
from odradek.broker.telemetry.otlp import Buckets, Point, Pushed, Undecodable, decoded
from tests.broker.telemetry.otlp_messages import CUMULATIVE, DELTA, RECORDED, gauge, histogram, metrics_data, total


def points(*metrics: Metric) -> list[Point]:
    pushed = finished(decoded(metrics_data(*metrics)))
    assert pushed.left_out == 0
    return pushed.points


def left_out(*metrics: Metric) -> int:
    pushed = finished(decoded(metrics_data(*metrics)))
    assert pushed.points == []
    return pushed.left_out


def test_a_gauge_is_named_for_prometheus() -> None:
    [point] = points(gauge("org.apache.kafka.producer.request.latency.avg", 2.5))
    assert point == Point("kafka_client_producer_request_latency_avg", "gauge", (), 2.5, is_delta=False)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("org.apache.kafka.a", "kafka_client_a"),
        ("com.example/my-metric", "kafka_client_com_example_my_metric"),
        ("0 é\n", "kafka_client_0___"),
        ("x" * 200, "kafka_client_" + "x" * 200),
    ],
)
def test_a_name_has_only_what_prometheus_allows(name: str, shown: str) -> None:
    assert [point.name for point in points(gauge(name, 1.0))] == [shown]


@pytest.mark.parametrize("name", ["", "org.apache.kafka.", "x" * 201])
def test_a_metric_without_a_usable_name_is_left_out(name: str) -> None:
    assert left_out(gauge(name, 1.0, 2.0)) == 2


def test_a_sum_that_only_grows_is_a_counter_and_another_a_gauge() -> None:
    found = points(
        total("a.total", 3),
        total("b", 4.5, temporality=CUMULATIVE),
        total("c", -1, monotonic=False),
    )
    assert [(each.name, each.kind, each.value, each.is_delta) for each in found] == [
        ("kafka_client_a", "counter", 3.0, True),
        ("kafka_client_b", "counter", 4.5, False),
        ("kafka_client_c", "gauge", -1.0, True),
    ]


def test_a_histogram_has_its_buckets() -> None:
    [point] = points(histogram("h", [0.5, 2.0], [1, 0, 4], 9.5))
    assert point == Point("kafka_client_h", "histogram", (), Buckets((0.5, 2.0), (1, 0, 4), 9.5), is_delta=True)


def test_a_histogram_without_bounds_counts_its_values() -> None:
    metric = histogram("h", [], [], 7.0, temporality=CUMULATIVE)
    metric.histogram.data_points[0].count = 3
    [point] = points(metric)
    assert (point.value, point.is_delta) == (Buckets((), (3,), 7.0), False)


@pytest.mark.parametrize(
    ("bounds", "counts", "of_all"),
    [
        ([1.0], [1], 0.0),
        ([1.0], [1, 2, 3], 0.0),
        ([2.0, 1.0], [1, 2, 3], 0.0),
        ([1.0, 1.0], [1, 2, 3], 0.0),
        ([math.nan], [1, 2], 0.0),
        ([math.inf], [1, 2], 0.0),
        ([1.0], [1, 2], math.nan),
        ([float(n) for n in range(101)], [1] * 102, 0.0),
    ],
)
def test_a_histogram_that_makes_no_sense_is_left_out(bounds: list[float], counts: list[int], of_all: float) -> None:
    assert left_out(histogram("h", bounds, counts, of_all)) == 1


def test_attributes_of_a_point_are_labels_in_the_order_of_their_names() -> None:
    [point] = points(gauge("a", 1.0, topic="t", **{"node.id": 3, "ok": True, "x": 0.5}))
    assert point.labels == (("node_id", "3"), ("ok", "True"), ("topic", "t"), ("x", "0.5"))


def test_attributes_of_a_resource_are_labels_of_the_client() -> None:
    pushed = finished(decoded(metrics_data(gauge("a", 1.0), resource={"member.id": "m", "group_id": "g"})))
    assert (pushed.attributes, [each.labels for each in pushed.points]) == (
        (("group_id", "g"), ("member_id", "m")),
        [()],
    )


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("client_id", "exported_client_id"),
        ("client_instance_id", "exported_client_instance_id"),
        ("le", "exported_le"),
        ("__name__", "exported___name__"),
        ("1st", "exported_1st"),
        ("a-b", "a_b"),
    ],
)
def test_a_label_does_not_take_the_place_of_another(key: str, label: str) -> None:
    [point] = points(gauge("a", 1.0, **{key: "v"}))
    assert point.labels == ((label, "v"),)


def test_a_label_has_no_line_ends() -> None:
    [point] = points(gauge("a", 1.0, topic='t\r\n# HELP evil"} 1\x00'))
    assert point.labels == (("topic", r't\r\n# HELP evil"} 1\x00'),)


@pytest.mark.parametrize(
    "labels",
    [
        {f"l{n}": "v" for n in range(9)},
        {"l": "v" * 512},
        {"l": b"bytes"},
        {"": "v"},
        {"l": "\n" * 300},
    ],
)
def test_a_point_with_labels_beyond_the_bounds_is_left_out(labels: dict[str, Any]) -> None:
    assert left_out(gauge("a", 1.0, **labels)) == 1


def test_labels_up_to_the_bounds_are_kept() -> None:
    assert len(points(gauge("a", 1.0, **{f"l{n}": "v" * 62 for n in range(8)}))) == 1


@pytest.mark.parametrize("resource", [{"huge": "v" * 4096}, {f"l{n}": "v" for n in range(9)}, {"l": "v" * 512}])
def test_attributes_of_a_resource_beyond_the_bounds_are_ignored(resource: dict[str, str]) -> None:
    pushed = finished(decoded(metrics_data(gauge("a", 1.0), resource=resource)))
    assert (pushed.attributes, len(pushed.points)) == ((), 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gauge_may_be_no_number_and_a_sum_may_not(value: float) -> None:
    [point] = points(gauge("a", value))
    assert isinstance(point.value, float)
    assert math.isnan(point.value) or point.value == value
    assert left_out(total("a", value), total("b", value, monotonic=False)) == 2


def test_a_counter_does_not_fall() -> None:
    assert left_out(total("a", -1)) == 1


def test_a_sum_without_a_temporality_is_left_out() -> None:
    assert left_out(total("a", 1, temporality=0), histogram("h", [1.0], [1, 2], temporality=7)) == 2


def test_a_point_without_a_value_is_left_out() -> None:
    metric = gauge("a")
    metric.gauge.data_points.add()
    assert left_out(metric) == 1


def test_kinds_that_clients_do_not_push_are_left_out() -> None:
    summary, exponential = Metric(name="s"), Metric(name="e")
    summary.summary.data_points.add(count=1)
    exponential.exponential_histogram.data_points.add(count=1)
    assert left_out(summary, exponential, Metric(name="none")) == 3


def test_a_huge_metric_is_left_out_and_the_others_stay() -> None:
    huge = gauge("huge", *([1.0] * 10_000))
    assert huge.ByteSize() > otlp.MOST_METRIC_BYTES
    pushed = finished(decoded(metrics_data(huge, gauge("a", 1.0))))
    assert ([each.name for each in pushed.points], pushed.left_out) == (["kafka_client_a"], 1)


def test_no_more_points_are_looked_at_than_a_client_may_have() -> None:
    pushed = finished(decoded(metrics_data(*(gauge(f"a{n}", *([1.0] * 7)) for n in range(200)))))
    assert len(pushed.points) == otlp.MOST_POINTS
    assert pushed.left_out == 1


def test_a_metric_of_more_points_than_a_client_may_have_is_left_out() -> None:
    assert left_out(gauge("a", *([1] * 1001))) == 1001


def test_nothing_is_an_empty_push() -> None:
    assert finished(decoded(b"")) == Pushed([], 0, ())


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
def test_a_push_of_a_real_client_has_what_protobuf_reads_of_it(name: str) -> None:
    data = (RECORDED / name).read_bytes()
    pushed = finished(decoded(data))
    expected = [
        (metric.name, len(getattr(metric, metric.WhichOneof("data") or "").data_points))
        for resource in MetricsData.FromString(data).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    assert pushed.left_out == 0
    assert len(pushed.points) == sum(count for _, count in expected)
    assert {each.name for each in pushed.points} == {
        "kafka_client_" + found.removeprefix("org.apache.kafka.").replace(".", "_").removesuffix("_total")
        for found, _ in expected
    }


def test_a_java_producer_tells_its_nodes_and_topics_apart() -> None:
    pushed = finished(decoded((RECORDED / "java-producer-4.4.0.otlp").read_bytes()))
    sent = [each for each in pushed.points if each.name == "kafka_client_producer_topic_record_send"]
    assert [(each.labels, each.kind, each.is_delta) for each in sent] == [((("topic", "t"),), "counter", True)]
    nodes = {each.labels for each in pushed.points if each.name == "kafka_client_producer_node_request_latency_max"}
    assert nodes == {(("node_id", "node-1"),), (("node_id", "node--1"),)}


def test_a_librdkafka_consumer_names_its_group() -> None:
    pushed = finished(decoded((RECORDED / "librdkafka-consumer-2.16.0.otlp").read_bytes()))
    assert pushed.attributes == (("group_id", "g"),)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b\x0c",
        b"\x00\x01",
        b"\x09abc",
        b"\x0d\x00",
        b"\x08\x80",
        b"\x0a\x02\x12\x05",
        metrics_data(gauge("a", 1.0))[:-1],
    ],
)
def test_what_is_no_metrics_data_fails_as_a_whole(data: bytes) -> None:
    with pytest.raises(Undecodable):
        finished(decoded(data))


def test_a_metric_that_protobuf_cannot_read_fails_as_a_whole() -> None:
    data = metrics_data(gauge("a", 1.0), gauge("zz", 1.0)).replace(b"zz", b"\xff\xff")
    with pytest.raises(Undecodable):
        finished(decoded(data))


def test_mutated_pushes_decode_or_fail_as_a_whole() -> None:
    """As protobuf reads each of them, but for what it does not look into."""
    chance = random.Random(714)
    originals = [path.read_bytes() for path in sorted(RECORDED.iterdir())]
    originals += [metrics_data(histogram("h", [1.0, 2.0], [1, 2, 3], 4.0, topic="t"), total("a", 1), resource={"r": 1})]
    decodable = 0
    for _ in range(4000):
        data = bytearray(chance.choice(originals)[: chance.randint(1, 1500)])
        for _ in range(chance.randint(0, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            pushed = finished(decoded(bytes(data)))
        except Undecodable:
            continue
        decodable += 1
        assert len(pushed.points) <= otlp.MOST_POINTS
        for point in pushed.points:
            assert point.name.isascii()
            assert all(value.isprintable() for _, value in point.labels)
    assert decodable > 50


def test_a_long_push_takes_many_steps() -> None:
    assert sum(1 for _ in decoded(b"\x0a\x00" * 15_000)) == 50


def test_no_more_fields_are_looked_at_than_clients_push() -> None:
    """Two bytes are a field: half a million of them would take a second."""
    metric = metrics_data(gauge("a", 1.0))
    fields = otlp.MOST_FIELDS - 3  # those of the levels and the metric
    assert len(finished(decoded(b"\x0a\x00" * fields + metric)).points) == 1
    assert finished(decoded(b"\x0a\x00" * (fields + 1) + metric)) == Pushed([], 0, ())


def test_a_delta_is_told_from_a_total() -> None:
    assert [each.is_delta for each in points(total("a", 1, temporality=DELTA), gauge("b", 1))] == [True, False]

"""What clients have pushed: replaced or added up, within bounds, and gone with the client."""

from __future__ import annotations

import math
from uuid import UUID

import pytest

from odradek.broker.telemetry import client_series
from odradek.broker.telemetry.client_series import ClientSeries, Value
from odradek.broker.telemetry.otlp import Buckets, Labels, Point

ONE, TWO = UUID(int=1), UUID(int=2)


def point(name: str, value: Value = 1.0, *, kind: str = "gauge", labels: Labels = (), is_delta: bool = False) -> Point:
    return Point(name, kind, labels, value, is_delta)


def values(series: ClientSeries, name: str, client: UUID = ONE) -> list[Value]:
    return [value for metric, _, value in series.of_client(client) if metric.name == name]


def test_a_push_replaces_a_gauge() -> None:
    series = ClientSeries(10)
    series.put(ONE, [point("a", 1.0)])
    series.put(ONE, [point("a", math.inf)])
    assert values(series, "a") == [math.inf]
    assert (series.size, series.dropped) == (1, 0)


def test_a_push_adds_a_delta_and_replaces_a_total() -> None:
    series = ClientSeries(10)
    for value, is_delta in ((5.0, True), (2.5, True), (1.0, False), (1.0, True)):
        series.put(ONE, [point("a", value, kind="counter", is_delta=is_delta)])
    assert values(series, "a") == [2.0]


def test_buckets_are_added_up_and_begin_anew_with_other_bounds() -> None:
    series = ClientSeries(100)
    series.put(ONE, [point("h", Buckets((1.0,), (1, 2), 3.0), kind="histogram", is_delta=True)])
    series.put(ONE, [point("h", Buckets((1.0,), (0, 5), 7.0), kind="histogram", is_delta=True)])
    assert values(series, "h") == [Buckets((1.0,), (1, 7), 10.0)]
    series.put(ONE, [point("h", Buckets((1.0, 2.0), (1, 1, 1), 4.0), kind="histogram", is_delta=True)])
    assert values(series, "h") == [Buckets((1.0, 2.0), (1, 1, 1), 4.0)]
    assert series.size == series.size_of(ONE) == 3


def test_series_differ_by_client_and_by_labels() -> None:
    series = ClientSeries(10)
    topic = (("topic", "t"),)
    series.put(ONE, [point("a", 1.0), point("a", 2.0, labels=topic)])
    series.put(TWO, [point("a", 3.0)])
    assert (values(series, "a"), values(series, "a", TWO)) == ([1.0, 2.0], [3.0])
    [metric] = series.metrics
    assert [(each.client, each.labels, each.value) for each in metric.series()] == [
        (ONE, (), 1.0),
        (ONE, topic, 2.0),
        (TWO, (), 3.0),
    ]


def test_a_series_that_the_last_push_does_not_have_is_gone() -> None:
    series = ClientSeries(2)
    topic = (("topic", "t"),)
    series.put(ONE, [point("a"), point("a", labels=topic)])
    series.put(ONE, [point("a", 2.0), point("b", 3.0)])
    assert (values(series, "a"), values(series, "b"), series.size, series.dropped) == ([2.0], [3.0], 2, 0)
    series.put(ONE, [])
    assert (series.metrics, series.size, series.size_of(ONE)) == ([], 0, 0)


def test_a_client_that_goes_takes_its_series_along_and_metrics_that_nobody_has() -> None:
    series = ClientSeries(10)
    series.put(ONE, [point("a"), point("b")])
    series.put(TWO, [point("a")])
    series.forget(ONE)
    assert ([each.name for each in series.metrics], series.size, series.size_of(ONE)) == (["a"], 1, 0)
    assert series.of_client(ONE) == []
    series.forget(ONE)
    series.forget(TWO)
    assert (series.metrics, series.size) == ([], 0)


def test_a_client_that_comes_back_counts_from_nothing() -> None:
    series = ClientSeries(10)
    delta = point("a", 5.0, kind="counter", is_delta=True)
    series.put(ONE, [delta])
    series.forget(ONE)
    series.put(ONE, [delta])
    assert values(series, "a") == [5.0]


def test_series_beyond_the_bound_of_all_are_dropped_and_those_there_go_on() -> None:
    series = ClientSeries(2)
    series.put(ONE, [point("a"), point("b"), point("c")])
    series.put(TWO, [point("a")])
    assert (series.size, series.dropped) == (2, 2)
    series.put(ONE, [point("a", 9.0), point("b")])
    assert (values(series, "a"), series.dropped) == ([9.0], 2)
    assert [each.name for each in series.metrics] == ["a", "b"]


def test_series_beyond_the_bound_of_a_client_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "MOST_SERIES_OF_CLIENT", 2)
    series = ClientSeries(100)
    series.put(ONE, [point("a"), point("b"), point("c")])
    series.put(TWO, [point("c")])
    assert (series.size_of(ONE), series.size_of(TWO), series.dropped) == (2, 1, 1)


def test_a_histogram_counts_as_its_buckets() -> None:
    series = ClientSeries(4)
    three = point("h", Buckets((1.0, 2.0), (1, 1, 1), 0.0), kind="histogram")
    two = point("i", Buckets((1.0,), (1, 1), 0.0), kind="histogram")
    series.put(ONE, [three, two, point("a"), point("b")])
    assert (series.size, series.dropped, [each.name for each in series.metrics]) == (4, 2, ["h", "a"])
    four = point("h", Buckets((1.0, 2.0, 3.0), (1, 1, 1, 1), 0.0), kind="histogram")
    series.put(ONE, [four, point("a")])
    assert (series.size, series.dropped) == (4, 3)


def test_metrics_beyond_the_bound_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "MOST_METRICS", 2)
    series = ClientSeries(100)
    series.put(ONE, [point("a"), point("b"), point("c")])
    assert series.dropped == 1
    series.forget(ONE)
    series.put(ONE, [point("c")])
    assert series.dropped == 1


def test_a_metric_keeps_the_kind_it_came_with_while_anybody_has_it() -> None:
    series = ClientSeries(100)
    series.put(ONE, [point("a", kind="gauge")])
    series.put(TWO, [point("a", kind="counter")])
    assert series.dropped == 1
    series.forget(ONE)
    series.put(TWO, [point("a", kind="counter")])
    assert ([each.kind for each in series.metrics], series.dropped) == (["counter"], 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "counter"), ("a_total", "gauge")),
        (("h", "histogram"), ("h_sum", "gauge")),
        (("h_count", "gauge"), ("h", "histogram")),
    ],
)
def test_no_metric_writes_lines_of_another(first: tuple[str, str], second: tuple[str, str]) -> None:
    def of(name: str, kind: str) -> Point:
        return point(name, Buckets((), (1,), 0.0) if kind == "histogram" else 1.0, kind=kind)

    series = ClientSeries(100)
    series.put(ONE, [of(*first), of(*second)])
    assert ([each.name for each in series.metrics], series.dropped) == ([first[0]], 1)
    series.forget(ONE)
    series.put(ONE, [of(*second)])
    assert [each.name for each in series.metrics] == [second[0]]

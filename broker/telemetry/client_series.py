"""What clients have pushed, by metric: bounded in metrics, in series of a client, and in series of all.

(A) A series is one metric of one client with some labels. A push replaces its value, or adds to it if it is a delta. A
    series that the last push of the client does not have is gone: of a node or topic that the client has left, say.
(B) A metric has the kind that it came with first. It is there as long as a client has a series of it.
(C) A series beyond a bound, and one of another kind than its metric, is dropped and counted. A histogram counts as a
    series for each of its buckets.
(D) No metric may write lines of another: `a`, a histogram, takes `a_count`, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek.broker.telemetry.otlp import Buckets, Labels, Point

MOST_METRICS = 1000
MOST_SERIES_OF_CLIENT = 1000
_SUFFIXES = {"counter": ("", "_total"), "gauge": ("",), "histogram": ("", "_bucket", "_count", "_sum")}

Value = float | Buckets


class Series(NamedTuple):
    """One series (A). `client`: the id of the client instance."""

    client: UUID
    labels: Labels
    value: Value


class ClientMetric:
    """One metric, and the values of its series by client and labels."""

    __slots__ = ("kind", "name", "values")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.values: dict[tuple[UUID, Labels], Value] = {}

    @property
    def lines(self) -> Iterator[str]:
        """What its lines begin with (D)."""
        return (self.name + suffix for suffix in _SUFFIXES[self.kind])

    def series(self) -> list[Series]:
        return [Series(client, labels, value) for (client, labels), value in self.values.items()]


class _OfClient:
    """The series of a client, by metric and labels. `size` counts them as (C) says."""

    __slots__ = ("series", "size")

    def __init__(self) -> None:
        self.series: dict[tuple[str, Labels], None] = {}
        self.size = 0


class ClientSeries:
    """The series of all clients of one broker. `most`: the bound of all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._metrics: dict[str, ClientMetric] = {}
        self._lines: dict[str, None] = {}
        self._of_clients: dict[UUID, _OfClient] = {}
        self.size = 0
        self.dropped = 0

    @property
    def metrics(self) -> list[ClientMetric]:
        return list(self._metrics.values())

    def put(self, client: UUID, points: Sequence[Point]) -> None:
        """Takes over what a client has pushed."""
        of_client = self._of_clients.setdefault(client, _OfClient())
        pushed = {(point.name, point.labels) for point in points}
        for name, labels in [each for each in of_client.series if each not in pushed]:
            self._remove(client, of_client, name, labels)
        for point in points:
            if not self._add(client, of_client, point):
                self.dropped += 1

    def forget(self, client: UUID) -> None:
        """Removes the series of a client that has gone."""
        of_client = self._of_clients.pop(client, None)
        if of_client is not None:
            for name, labels in list(of_client.series):
                self._remove(client, of_client, name, labels)

    def of_client(self, client: UUID) -> list[tuple[ClientMetric, Labels, Value]]:
        """Returns the series of one client."""
        found = self._of_clients.get(client)
        named = [] if found is None else [(self._metrics[name], labels) for name, labels in found.series]
        return [(metric, labels, metric.values[client, labels]) for metric, labels in named]

    def size_of(self, client: UUID) -> int:
        """Returns how many series a client has."""
        found = self._of_clients.get(client)
        return 0 if found is None else found.size

    def _add(self, client: UUID, of_client: _OfClient, point: Point) -> bool:
        """Returns whether there is room (C)."""
        metric = self._metrics.get(point.name)
        is_new = metric is None
        if metric is None:
            metric = ClientMetric(point.name, point.kind)
            if len(self._metrics) >= MOST_METRICS or any(line in self._lines for line in metric.lines):
                return False
        elif metric.kind != point.kind:
            return False
        key = client, point.labels
        before = metric.values.get(key)
        value = point.value if before is None or not point.is_delta else _added(before, point.value)
        more = _size(value) - (0 if before is None else _size(before))
        if more > 0 and (self.size + more > self._most or of_client.size + more > MOST_SERIES_OF_CLIENT):
            return False
        if is_new:
            self._metrics[metric.name] = metric
            self._lines.update(dict.fromkeys(metric.lines))
        metric.values[key] = value
        of_client.series[point.name, point.labels] = None
        of_client.size += more
        self.size += more
        return True

    def _remove(self, client: UUID, of_client: _OfClient, name: str, labels: Labels) -> None:
        """Removes a series, and its metric if it was the last (B)."""
        metric = self._metrics[name]
        size = _size(metric.values.pop((client, labels)))
        del of_client.series[name, labels]
        of_client.size -= size
        self.size -= size
        if not metric.values:
            del self._metrics[name]
            for line in metric.lines:
                del self._lines[line]


def _size(value: Value) -> int:
    return len(value.counts) if isinstance(value, Buckets) else 1


def _added(before: Value, value: Value) -> Value:
    """Returns the value after a delta (A). Buckets with other bounds begin anew."""
    if isinstance(before, Buckets) and isinstance(value, Buckets):
        if before.bounds != value.bounds:
            return value
        counts = tuple(map(int.__add__, before.counts, value.counts))
        return Buckets(before.bounds, counts, before.total + value.total)
    assert isinstance(before, float)
    assert isinstance(value, float)
    return before + value

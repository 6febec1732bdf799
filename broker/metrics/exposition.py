"""Generates the text of `/metrics`, in Prometheus's format, from the table of families and the process metrics.

A broker with thousands of partitions has tens of thousands of samples. Writing them all at once would block the event
loop, so the text is generated in chunks with a bounded number of samples, and the caller yields to the loop between
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from odradek.broker.metadata_store.session_metrics import SessionMetrics
from odradek.broker.metrics.families import COUNTER, FAMILIES, STORE_LATENCY, TOTAL, Family, Sample
from odradek.broker.metrics.sources import BrokerStatus, MetricSources
from odradek.broker.requests.request_metrics import TIME_BUCKETS, BrokerMetrics, bucket_time_ms
from odradek.timer import Clock

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SAMPLES_PER_CHUNK = 250
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
WINDOW_MS = 60_000


class Exposition:
    """Generates the text for one broker. Keeps the request times of earlier texts to compute recent quantiles."""

    def __init__(self, clock: Clock, requests: BrokerMetrics) -> None:
        self._requests = requests
        self._request_times = RecentTimes(clock)
        self._store_times = RecentTimes(clock)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def chunks(self, status: BrokerStatus) -> Iterator[bytes]:
        """Yields the text in chunks; the caller may stop after any of them. A broker that does not serve clients has
        only its process metrics and its state.
        """
        yield generate_latest(self._process)
        state = Metric("kafka_server_kafkaserver_brokerstate", "3: running, 1: starting, 7: stopping.", "gauge")
        state.add_sample(state.name, {}, status.state)
        yield generate_latest(OneMetric(state))
        if status.sources is not None:
            for family in FAMILIES:
                yield from self._family(family, status.sources)
            if status.sources.telemetry is not None:
                from odradek.broker.metrics.own_of_clients import own_of_clients

                for own in own_of_clients(status.sources.telemetry):
                    yield from texts(*own)

    def _family(self, family: Family, sources: MetricSources) -> Iterator[bytes]:
        if family.name == TOTAL:
            yield generate_latest(OneMetric(self._request_times.metric(family, request_times(self._requests))))
            return
        if family.name == STORE_LATENCY:
            times = store_times(sources.store_session)
            yield generate_latest(OneMetric(self._store_times.metric(family, times)))
            return
        name = f"{family.name}_total" if family.kind == COUNTER else family.name
        samples = ((name, labels_of(family, values), value) for values, value in family.read(sources))
        yield from texts(family.name, family.documentation, family.kind, samples)


class OneMetric(CollectorRegistry):
    """A registry with one metric that has already been read."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Times(NamedTuple):
    """Times since the start: their counts by `time_bucket`, and their sum."""

    counts: list[int]
    total_ms: float


class RecentTimes:
    """Makes a summary of times by their labels: count and sum since the start, and quantiles over the last one to two
    WINDOW_MS.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newer: dict[tuple[str, ...], list[int]] = {}
        self._older: dict[tuple[str, ...], list[int]] = {}
        self._taken_ms = clock.now_ms()

    def metric(self, family: Family, times: Mapping[tuple[str, ...], Times]) -> Metric:
        """`times` by the values of the family's labels. Nobody may change their counts afterwards."""
        metric = Metric(family.name, family.documentation, family.kind)
        for values, (counts, total_ms) in times.items():
            labels = labels_of(family, values)
            before = self._older.get(values) or [0] * TIME_BUCKETS
            recent = [now - then for now, then in zip(counts, before, strict=True)]
            for quantile in QUANTILES:
                metric.add_sample(family.name, {**labels, "quantile": quantile}, quantile_ms(recent, float(quantile)))
            metric.add_sample(f"{family.name}_count", labels, sum(counts))
            metric.add_sample(f"{family.name}_sum", labels, total_ms)
        self._keep(times)
        return metric

    def _keep(self, times: Mapping[tuple[str, ...], Times]) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._taken_ms >= WINDOW_MS:
            self._older, self._newer = self._newer, {values: each.counts for values, each in times.items()}
            self._taken_ms = now_ms


def request_times(requests: BrokerMetrics) -> dict[tuple[str, ...], Times]:
    """The times of all requests, by API."""
    found: dict[tuple[str, ...], Times] = {}
    for row in list(requests.requests.values()):
        known = found.get((row.api,))
        counts = [a + b for a, b in zip(known.counts, row.times, strict=True)] if known else list(row.times)
        found[(row.api,)] = Times(counts, (known.total_ms if known else 0) + row.total_time_ms)
    return found


def store_times(session: SessionMetrics | None) -> dict[tuple[str, ...], Times]:
    """The times of all requests to the metadata store, without labels."""
    return {} if session is None else {(): Times(list(session.times), session.total_time_ms)}


def quantile_ms(counts: list[int], quantile: float) -> float:
    """Returns the time that the fraction `quantile` of the requests did not exceed, or NaN without requests."""
    total = sum(counts)
    if not total:
        return float("nan")
    reached = 0
    for bucket, count in enumerate(counts):
        reached += count
        if reached >= total * quantile:
            return bucket_time_ms(bucket)
    return bucket_time_ms(len(counts) - 1)


def texts(name: str, documentation: str, kind: str, samples: Iterable[Sample]) -> Iterator[bytes]:
    """Yields the lines of one metric in chunks, the first with HELP and TYPE."""
    headed = False
    for batch in batches(samples):
        metric = Metric(name, documentation, kind)
        for sample in batch:
            metric.add_sample(*sample)
        text = generate_latest(OneMetric(metric))
        yield without_head(text) if headed else text
        headed = True


def batches(rows: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Yields the rows in lists of bounded length. Without rows it yields one empty list, so that HELP and TYPE are
    still written.
    """
    iterator = iter(rows)
    yield list(itertools.islice(iterator, SAMPLES_PER_CHUNK))
    while batch := list(itertools.islice(iterator, SAMPLES_PER_CHUNK)):
        yield batch


def labels_of(family: Family, values: Iterable[str]) -> dict[str, str]:
    """Returns the labels that have a value. The total over all topics has no topic label, as in Kafka."""
    return {label: value for label, value in zip(family.labels, values, strict=True) if value}


def without_head(text: bytes) -> bytes:
    """Returns the samples without HELP and TYPE, for a family whose head has already been written."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))

"""Generates the text of `/metrics`, in Prometheus's format, from the table of families and the process metrics.

A broker with thousands of partitions has tens of thousands of samples. Writing them all at once would block the event
loop, so the text is generated in chunks with a bounded number of samples, and the caller yields to the loop between
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from odradek.broker.metrics.families import COUNTER, FAMILIES, TOTAL, Family, Row
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
        self._times = RequestTimes(clock, requests)
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

    def _family(self, family: Family, sources: MetricSources) -> Iterator[bytes]:
        if family.name == TOTAL:
            yield generate_latest(OneMetric(self._times.metric(family)))
            return
        name = f"{family.name}_total" if family.kind == COUNTER else family.name
        headed = False
        for rows in batches(family.read(sources)):
            metric = Metric(family.name, family.documentation, family.kind)
            for values, value in rows:
                metric.add_sample(name, labels_of(family, values), value)
            text = generate_latest(OneMetric(metric))
            yield without_head(text) if headed else text
            headed = True


class OneMetric(CollectorRegistry):
    """A registry with one metric that has already been read."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class RequestTimes:
    """The summary of request times: count and sum since the start, and quantiles over the last one to two WINDOW_MS."""

    def __init__(self, clock: Clock, requests: BrokerMetrics) -> None:
        self._clock = clock
        self._requests = requests
        self._newer: dict[str, list[int]] = {}
        self._older: dict[str, list[int]] = {}
        self._taken_ms = clock.now_ms()

    def metric(self, family: Family) -> Metric:
        counts: dict[str, list[int]] = {}
        sums: dict[str, int] = {}
        for row in list(self._requests.requests.values()):
            known = counts.get(row.api)
            counts[row.api] = [a + b for a, b in zip(known, row.times, strict=True)] if known else list(row.times)
            sums[row.api] = sums.get(row.api, 0) + row.total_time_ms
        metric = Metric(family.name, family.documentation, family.kind)
        for api, times in counts.items():
            before = self._older.get(api) or [0] * TIME_BUCKETS
            recent = [now - then for now, then in zip(times, before, strict=True)]
            for quantile in QUANTILES:
                value = quantile_ms(recent, float(quantile))
                metric.add_sample(family.name, {"request": api, "quantile": quantile}, value)
            metric.add_sample(f"{family.name}_count", {"request": api}, sum(times))
            metric.add_sample(f"{family.name}_sum", {"request": api}, sums[api])
        self._keep(counts)
        return metric

    def _keep(self, counts: dict[str, list[int]]) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._taken_ms >= WINDOW_MS:
            self._older, self._newer, self._taken_ms = self._newer, counts, now_ms


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


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
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

"""The metrics of jobs: what Prometheus reads agrees with the ledger and the topics."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.topics import Topic
from odradek.pipeline.report.metrics import Metrics, served
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.lake import IngestThread, check_ledger, order, send
from tests.pipeline.ledger_rows import START, batch
from tests.spawned_broker import free_port

Samples = Mapping[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """The samples by their names, without the prefix, and the values of their labels, sorted by name, but the
    pipeline's."""
    found = [one for family in text_string_to_metric_families(text) for one in family.samples]
    names = [(one, [value for name, value in sorted(one.labels.items()) if name != "pipeline"]) for one in found]
    return {(one.name.removeprefix("odradek_pipeline_"), *labels): one.value for one, labels in names}


def text_of(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def scraped(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        return samples(response.read().decode())


def test_batches_are_counted_by_outcome_and_reason() -> None:
    metrics = Metrics(now=lambda: 5000.0)
    metrics.begin("orders", {})
    before = samples(text_of(metrics))
    assert (before["rows_total", "good"], before["dead_letters_total", "not_json"]) == (0, 0)
    assert ("watermark_timestamp_seconds",) not in before
    metrics.batch("orders", batch(0, {"t": {0: 2}}))
    metrics.batch("orders", batch(1, {"t": {0: 4}}, lost=3, reasons={"tombstone": 2}))
    assert (before["redriven_total", "not_json"], before["redriven_total", "tombstone"]) == (0, 0)
    found = samples(text_of(metrics))
    assert [found["rows_total", name] for name in ("good", "dead", "duplicates", "late")] == [10, 4, 4, 2]
    assert (found["rows_in_total",], found["lost_offsets_total",]) == (20, 3)
    assert (found["dead_letters_total", "tombstone"], found["dead_letters_total", "not_json"]) == (3, 1)
    of_redrive = {"rows_in": 0, "good": 1, "dead": 0, "duplicates": 0, "late": 0, "reasons": {}, "redriven": 1}
    metrics.batch("orders", batch(2, {"t": {0: 4}}, job="redrive", **of_redrive, redriven_reasons={"not_json": 1}))
    after = samples(text_of(metrics))
    assert (after["redriven_total", "not_json"], after["dead_letters_total", "not_json"]) == (1, 1)
    assert (after["rows_in_total",], after["rows_total", "good"]) == (20, 11)
    assert (found["batch_seconds_count",], found["batch_seconds_sum",]) == (2, 4)
    assert (found["batch_seconds_bucket", "1.0"], found["batch_seconds_bucket", "2.0"]) == (0, 2)
    assert (found["last_batch",], found["last_batch_rows_per_second",]) == (1, 5)
    assert found["last_batch_timestamp_seconds",] == START.timestamp() + 62
    assert found["watermark_timestamp_seconds",] == START.timestamp() + 60 - 600
    assert found["newest_event_timestamp_seconds",] == START.timestamp() + 60


def test_the_lag_is_of_the_topics_as_they_were_seen_last() -> None:
    metrics = Metrics(now=lambda: 5000.0)
    metrics.begin("orders", {"t": {0: 4}})
    metrics.looked("orders", {"t": Topic("", {0: 0, 1: 10}, {0: 9, 1: 12}), "gone": Topic("", {0: 0}, {0: 1})})
    found = samples(text_of(metrics))
    assert {key: value for key, value in found.items() if key[0] == "lag_offsets"} == {
        ("lag_offsets", "0", "t"): 5,
        ("lag_offsets", "1", "t"): 2,
        ("lag_offsets", "0", "gone"): 1,
    }
    assert found["ends_seen_timestamp_seconds",] == 5000
    metrics.looked("orders", {"t": Topic("", {0: 0, 1: 10}, {0: 9, 1: 12})})
    metrics.batch("orders", batch(1, {"t": {0: 9, 1: 11}}))
    found = samples(text_of(metrics))
    lags = {key[1:]: value for key, value in found.items() if key[0] == "lag_offsets"}
    assert lags == {("0", "t"): 0, ("1", "t"): 1}, "a deleted topic has no lag"


@pytest.mark.usefixtures("spark")
def test_a_running_ingest_serves_its_metrics_until_it_ends(
    broker: BrokerThread, orders: Settings, topic: str, spark: SparkSession
) -> None:
    port = free_port()
    settings = replace(orders, trigger="0 seconds", max_offsets_per_trigger=12, metrics_port=port)
    send(broker.bootstrap, topic, [*(order(number, number) for number in range(20)), b"{", None])
    with IngestThread(settings) as job:
        job.wait_for(lambda: sum(row.rows_in for row in Ledger(Places.of(settings).ledger).rows()) == 22)
        job.wait_for(lambda: scraped(port)["rows_in_total",] == 22)
        found = scraped(port)
        job.stop()
    rows = check_ledger(settings)
    assert found["rows_total", "good"] == sum(row.good for row in rows) == 20
    assert (found["dead_letters_total", "not_json"], found["dead_letters_total", "tombstone"]) == (1, 1)
    assert (found["last_batch",], found["batch_seconds_count",]) == (rows[-1].batch_id, len(rows))
    assert (found["lag_offsets", "0", topic], found["lag_offsets", "1", topic]) == (0, 0)
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_port_that_cannot_be_served_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for wrong, problem in [
            ({"metrics_port": port}, f"at 127.0.0.1:{port}: Address already in use; set another metrics-port"),
            ({"metrics_port": 70_000}, "at 127.0.0.1:70000: "),
        ]:
            with pytest.raises(PipelineError, match=problem), served(Metrics(), make_settings(wrong)):
                pass

"""Topics to tables, run by run: two readers find the rows of a batch computation."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.jobs import backfill, ingest
from odradek.pipeline.jobs.one_job import pause
from odradek.pipeline.kafka.topics import look
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.lake import (
    IngestThread,
    check_ledger,
    check_tables,
    order,
    read_by_arrow,
    send,
    send_transaction,
)


def test_several_batches_with_every_kind_of_record_are_in_the_tables_once(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), max_offsets_per_trigger=70, watermark_delay="1 hour")
    send(broker.bootstrap, topic, [order(number, number) for number in range(150)])
    send(broker.bootstrap, topic, [order(number, number) for number in range(10)])
    send(broker.bootstrap, topic, [b"{broken", None, b"[1]", b"", b'{"id": null}', order(1, 1, amount="much")])
    send_transaction(broker.bootstrap, topic, [order(number, 0) for number in range(1000, 1020)], commit=False)
    send_transaction(broker.bootstrap, topic, [order(number, 0) for number in range(200, 210)], commit=True)
    assert ingest.run(settings) == 0
    rows = check_tables(spark, settings)
    assert len(rows) > 2
    assert sum(row.duplicates for row in rows) == 10
    send(broker.bootstrap, topic, [order(number, 300 + number) for number in range(300, 310)])
    send(broker.bootstrap, topic, [order(number, number) for number in range(5)])
    assert ingest.run(settings) == 0
    assert ingest.run(settings) == 0, "nothing is left to do"
    assert sum(row.duplicates for row in check_tables(spark, settings)) == 15


def test_without_dedup_keys_no_row_is_dropped_and_large_keys_are_stored(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, partition_by=("customer",), files_per_batch=2)
    send(broker.bootstrap, topic, [*(order(number % 20, number) for number in range(40)), b"{", None])
    send(broker.bootstrap, topic, [order(2000, 5, customer="a" * 300)])
    send(broker.bootstrap, topic, [order(1000, 5), b"{", None], key_bytes=1_000_000, max_request_size=4 << 20)
    assert ingest.run(settings) == 0
    (row,) = check_ledger(settings)
    assert (row.rows_in, row.good, row.dead, row.duplicates, row.late) == (46, 41, 5, 0, 0)
    assert row.reasons["unfit_partition"] == 1
    assert sorted(one["id"] for one in read_by_arrow(Places.of(settings).rows, ["id"])) == sorted(
        [*range(20), *range(20), 1000]
    )
    keys = [len(one["key"]) for one in read_by_arrow(Places.of(settings).dead_letters, ["key"])]
    assert sorted(keys)[-2:] == [1_000_000, 1_000_000]


@pytest.mark.usefixtures("spark")
def test_the_parquet_sink_has_the_same_rows(broker: BrokerThread, orders: Settings, topic: str) -> None:
    settings = replace(orders, sink="parquet", max_offsets_per_trigger=30)
    send(broker.bootstrap, topic, [*(order(number, number) for number in range(50)), b"{"])
    assert ingest.run(settings) == 0
    assert ingest.run(settings) == 0
    places = Places.of(settings)
    rows = pyarrow.dataset.dataset(places.rows, partitioning="hive").to_table()
    assert sorted(rows["id"].to_pylist()) == list(range(50))
    assert pyarrow.dataset.dataset(places.dead_letters, partitioning="hive").to_table().num_rows == 1
    check_ledger(settings)
    with pytest.raises(PipelineError, match="windows need the sink delta or iceberg"):
        ingest.run(replace(settings, window="1 minute"))
    with pytest.raises(PipelineError, match="has files but is not a Delta table"):
        ingest.run(replace(settings, sink="delta"))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_new_column_is_added_to_the_table_and_a_changed_type_is_refused(
    broker: BrokerThread, orders: Settings, topic: str, sink: str
) -> None:
    orders = replace(orders, sink=sink)
    send(broker.bootstrap, topic, [order(1, 1)])
    assert ingest.run(orders) == 0
    send(broker.bootstrap, topic, [order(2, 2, note="new")])
    with pytest.raises(PipelineError, match="has amount double, but the settings have amount string"):
        ingest.run(replace(orders, schema=orders.schema.replace("DOUBLE", "STRING")))
    assert ingest.run(replace(orders, schema=f"{orders.schema}, note STRING")) == 0
    found = read_by_arrow(Places.of(orders).rows, ["id", "note"])
    assert sorted((row["id"], row["note"]) for row in found) == [(1, None), (2, "new")]


@pytest.mark.usefixtures("spark")
def test_the_ingest_begins_at_the_configured_offsets(
    broker: BrokerThread, orders: Settings, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker.bootstrap, topic, [order(number, number) for number in range(10)])
    settings = replace(orders, starting_offsets=f'{{"{topic}": {{"1": 3}}}}')
    assert ingest.run(settings) == 0
    assert f'"offsets": {{"{topic}-0": 0, "{topic}-1": 3}}' in capsys.readouterr().err
    assert sorted(row["id"] for row in read_by_arrow(Places.of(settings).rows, ["id"])) == [0, 2, 4, 6, 7, 8, 9]
    assert ingest.run(settings) == 0
    assert f'"offsets": {{"{topic}-0": 5, "{topic}-1": 5}}' in capsys.readouterr().err
    for wrong, problem in [
        ("soon", "is not earliest, latest or offsets"),
        *(
            (f'{{"{topic}": {{"0": {strange}}}}}', "is not earliest, latest or offsets")
            for strange in ("1.5", '"5"', "true", "-3")
        ),
        ('{"x": {"0": 1}}', "starting-offsets has x-0"),
        (f'{{"{topic}": {{"0": 6}}}}', f"{topic}-0 starts at 6, but the log ends at 5; set an offset"),
    ]:
        with pytest.raises(PipelineError, match=problem):
            ingest.run(replace(settings, name="other", starting_offsets=wrong))


def test_the_ingest_stops_between_batches_and_only_one_runs(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, trigger="0 seconds", max_offsets_per_trigger=20, dedup_keys=("id",))
    send(broker.bootstrap, topic, [order(number, number) for number in range(200)])
    with IngestThread(settings) as job:
        job.wait_for(lambda: len(Ledger(Places.of(settings).ledger).rows()) > 1)
        with pytest.raises(PipelineError, match=r"running here: it holds .*job\.lock"):
            ingest.run(settings)
        job.stop()
    rows = check_ledger(settings)
    assert 0 < sum(row.rows_in for row in rows) < 200
    assert ingest.run(replace(settings, trigger="available-now", max_offsets_per_trigger=0)) == 0
    check_tables(spark, settings)


@pytest.mark.parametrize("job", [ingest, backfill])
def test_a_signal_during_sparks_start_ends_the_job_after_it_without_waiting_for_brokers(
    job: Any, orders: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(_settings: Settings) -> SparkSession:
        signal.raise_signal(signal.SIGINT)
        return spark

    monkeypatch.setattr("odradek.pipeline.jobs.one_job.open_session", starts)
    monkeypatch.setattr("odradek.pipeline.kafka.topics.ATTEMPT_MS", 500)
    assert job.run(replace(orders, bootstrap_server="127.0.0.1:1")) == 0


def test_an_ingest_that_waits_for_brokers_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.pipeline.kafka.topics.ATTEMPT_MS", 500)
    stopping = threading.Event()
    sleep = pause(stopping)
    sleep(0.01)
    stopping.set()
    with pytest.raises(Stopped):
        look(Settings(bootstrap_server="127.0.0.1:1", topics=("t",)), list, sleep=sleep)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("trigger", ["soon", "", "-5 seconds"])
def test_an_invalid_trigger_is_reported(broker: BrokerThread, orders: Settings, topic: str, trigger: str) -> None:
    send(broker.bootstrap, topic, [order(1, 1)])
    with pytest.raises(PipelineError, match=f"trigger '{trigger}' is neither available-now nor a duration; set"):
        ingest.run(replace(orders, trigger=trigger))


def test_an_error_in_the_settings_is_one_clear_line(orders: Settings, spark: SparkSession) -> None:
    for change, problem in [
        ({"dedup_keys": ("nobody",)}, "dedup-keys names nobody"),
        ({"partition_by": ("nobody",)}, "partition-by names nobody"),
        ({"watermark_delay": "soon"}, "watermark-delay is 'soon', not a duration; set it to, say,"),
        ({"max_future": "-1 hour"}, "max-future is '-1 hour', not a duration; set it to, say,"),
        ({"master": "locally"}, r"master 'locally' is not a Spark master; set local\[\*\]"),
        ({"window": "1 minute", "window_sums": ("nobody",)}, "window-sums names nobody"),
    ]:
        with pytest.raises(PipelineError, match=problem) as caught:
            ingest.run(replace(orders, **change))  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)

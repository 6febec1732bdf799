"""Topics to tables, run by run: what is in them is what a batch computation finds, read by two readers."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from broker.testing import BrokerThread
from pipeline.jobs import ingest
from pipeline.settings import Settings
from tests.pipeline.lake import check_tables, order, send, send_transaction


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
    assert len([row for row in rows if row.rows_in]) > 2
    assert sum(row.duplicates for row in rows) == 10
    send(broker.bootstrap, topic, [order(number, 300 + number) for number in range(300, 310)])
    send(broker.bootstrap, topic, [order(number, number) for number in range(5)])
    assert ingest.run(settings) == 0
    assert ingest.run(settings) == 0, "nothing is left to do"
    assert sum(row.duplicates for row in check_tables(spark, settings)) == 15

"""The ledger counts as lost only what was deleted before it was read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.testing import BrokerThread
from tests.pipeline.lake import check_ledger, order, send


def delete_before(broker: BrokerThread, topic: str, offset: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_records({TopicPartition(topic, 0): offset})
    admin.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_records_deleted_after_they_were_read_are_not_lost(
    broker: BrokerThread, orders: Settings, topic: str, policy: str
) -> None:
    settings = replace(orders, on_data_loss=policy)
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])

    def reached(point: str) -> None:
        if point == "read":
            delete_before(broker, topic, 10)

    assert ingest.run(settings, reached) == 0
    assert ingest.run(settings) == 0
    assert [(row.rows_in, row.good, row.lost) for row in check_ledger(settings)] == [(20, 20, 0)]


@pytest.mark.usefixtures("spark")
def test_records_deleted_before_they_were_read_are_counted_as_lost_once(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, on_data_loss="continue", max_offsets_per_trigger=6)
    send(broker.bootstrap, topic, [order(number, number) for number in range(4)])
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(number, number) for number in range(4, 24)])
    delete_before(broker, topic, 7)
    assert ingest.run(settings) == 0
    rows = check_ledger(settings)
    assert sum(row.lost for row in rows) == 5
    assert sum(row.rows_in for row in rows) == 24 - 5

"""Good rows to a topic: once, for those who read committed, whatever was killed between."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kafka import KafkaConsumer

from broker.testing import BrokerThread
from pipeline.errors import PipelineError
from pipeline.jobs import ingest
from pipeline.settings import Settings
from tests.pipeline.lake import check_ledger, order, send


def read_committed(broker: BrokerThread, topic: str) -> list[tuple[bytes | None, dict[str, object]]]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=3000,
    )
    found = [(record.key, json.loads(record.value)) for record in consumer]
    consumer.close()
    return found


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("point", ["results: sent", "results: committed"])
def test_results_are_there_once_although_the_batch_was_broken_off(
    broker: BrokerThread, orders: Settings, topic: str, point: str
) -> None:
    results = f"{topic}-results"
    settings = replace(orders, results_topic=results)
    send(broker.bootstrap, topic, [*(order(number, number, customer=None) for number in range(30)), b"{"])

    def reached(now: str) -> None:
        if now == point:
            raise PipelineError("broken off")

    with pytest.raises(PipelineError, match="broken off"):
        ingest.run(settings, reached)
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(30, 30)])
    assert ingest.run(settings) == 0
    found = read_committed(broker, results)
    assert sorted(row["id"] for _, row in found) == list(range(31))  # type: ignore[type-var]
    key, row = next(one for one in found if one[1]["id"] == 7)
    assert key == b"7"
    assert row == {"id": 7, "customer": None, "amount": 1.75, "at": "2023-11-14T22:13:27.000Z"}
    check_ledger(settings)

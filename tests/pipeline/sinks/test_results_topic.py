"""Good rows in a topic: once for read_committed readers, whatever was killed in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from kafka import KafkaConsumer, TopicPartition

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.results_topic import ResultsTopic
from odradek.pipeline.state.batch_id import BatchId
from odradek.testing import BrokerThread
from tests.pipeline.lake import check_ledger, order, send


def read_committed(broker: BrokerThread, topic: str) -> list[tuple[bytes | None, dict[str, object]]]:
    """All records, read up to the ends of the partitions, beyond transaction markers."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
    consumer.assign(partitions)
    found = []
    ends = consumer.end_offsets(partitions)
    assert sum(ends.values()) > 0
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for records in consumer.poll(1000).values():
            found += [(record.key, json.loads(record.value)) for record in records]
    consumer.close()
    return found


@pytest.mark.usefixtures("spark")
def test_results_are_written_once_although_the_batch_was_interrupted_twice(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    results = f"{topic}-results"
    settings = replace(orders, results_topic=results)
    send(broker.bootstrap, topic, [*(order(number, number, customer=None) for number in range(30)), b"{"])

    def at(point: str) -> Callable[[str], None]:
        def reached(now: str) -> None:
            if now == point:
                raise PipelineError(f"broken off at {point}")

        return reached

    for point in ("results: sent", "results: committed"):
        with pytest.raises(PipelineError, match=f"broken off at {point}"):
            ingest.run(settings, at(point))
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(30, 30)])
    assert ingest.run(settings) == 0
    found = read_committed(broker, results)
    assert sorted(row["id"] for _, row in found) == list(range(31))  # type: ignore[type-var]
    key, row = next(one for one in found if one[1]["id"] == 7)
    assert key == b"7"
    assert row == {"id": 7, "customer": None, "amount": 1.75, "at": "2023-11-14T22:13:27.000Z"}
    check_ledger(settings)


def test_the_first_batch_waits_for_the_coordinator(orders: Settings) -> None:
    """The token's group is the first request for groups at a new broker, and creates their topic."""
    with BrokerThread() as fresh:
        settings = replace(orders, bootstrap_server=fresh.bootstrap, results_topic="results")
        assert ResultsTopic(settings).last_batch(BatchId("orders", 0)) is None

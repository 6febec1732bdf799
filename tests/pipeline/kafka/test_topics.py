"""Topics that are deleted, recreated or truncated at the start are reported by name; lost offsets are counted."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.structs import TopicPartition
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.jobs.runner import Runner
from odradek.pipeline.kafka.topics import (
    KnownTopic,
    Topic,
    TopicRecreated,
    Topics,
    TopicVanished,
    compare_ids,
    compare_offsets,
    known_topics,
    known_topics_of,
    known_topics_text,
    look,
)
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger, LedgerRow
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.lake import IngestThread, check_ledger, order, read_by_arrow, send

ORDERS = Topic("id-1", {0: 10, 1: 0}, {0: 20, 1: 5})


def test_ids_are_compared_by_topic_name_and_a_missing_id_is_accepted() -> None:
    known = {"orders": KnownTopic("id-1", {0: 5})}
    compare_ids(known, {"orders": ORDERS, "new": ORDERS})
    compare_ids({"orders": KnownTopic("", {})}, {"orders": ORDERS})
    compare_ids(known, {"orders": replace(ORDERS, id="")})
    with pytest.raises(TopicVanished, match="others: read before, but deleted now"):
        compare_ids({**known, "others": KnownTopic("id-2", {})}, {"orders": ORDERS})
    with pytest.raises(TopicRecreated, match="orders: deleted and recreated") as caught:
        compare_ids({"orders": KnownTopic("id-0", {}), "same": known["orders"]}, {"orders": ORDERS, "same": ORDERS})
    assert caught.value.topics == ["orders"]


def test_known_topics_are_stored_as_json() -> None:
    known = known_topics({"b": ORDERS, "a": Topic("", {}, {})})
    assert known == {"b": KnownTopic("id-1", {0: 20, 1: 5}), "a": KnownTopic("", {})}
    text = known_topics_text(known)
    assert text == '{"a": {"id": "", "ends": {}}, "b": {"id": "id-1", "ends": {"0": 20, "1": 5}}}'
    assert known_topics_of(json.loads(text)) == known
    known_by_others: list[Any] = [
        [],
        {"a": 1},
        {"a": {"id": "x"}},
        {"a": {"id": "x", "ends": {"0": "x"}}},
        {"a": {"ends": {}}},
    ]
    for strange in known_by_others:
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            known_topics_of(strange)


def test_offsets_out_of_range_are_reported_with_the_range() -> None:
    compare_offsets({"orders": {0: 10, 1: 5}}, {"orders": ORDERS})
    with pytest.raises(PipelineError, match=r"orders-0: offsets 3 to 9 were deleted; orders-1: .* 6, .* ends at 5"):
        compare_offsets({"orders": {0: 3, 1: 6}}, {"orders": ORDERS})
    with pytest.raises(PipelineError, match="orders-2 was deleted"):
        compare_offsets({"orders": {2: 0}}, {"orders": ORDERS})


def test_an_unresponsive_broker_is_named_after_the_timeout(orders: Settings) -> None:
    nowhere = replace(orders, bootstrap_server="127.0.0.1:1")
    with pytest.raises(PipelineError, match=r"127\.0\.0\.1:1 does not describe the topics"):
        look(nowhere, list, patience_s=0)


def create(broker: BrokerThread, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.close()


def delete(broker: BrokerThread, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_topics([topic])
    while topic in admin.list_topics():
        time.sleep(0.05)
    admin.close()


def numbers_of(settings: Settings) -> list[int]:
    return sorted(row["id"] for row in read_by_arrow(Places.of(settings).rows, ["id"]))


@pytest.mark.usefixtures("spark")
def test_a_recreated_topic_stops_the_ingest_or_is_read_from_its_beginning(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    other = f"{topic}-other"
    settings = replace(orders, topics=(topic, other))
    create(broker, other)
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    send(broker.bootstrap, other, [order(number, number) for number in range(100, 110)])
    assert ingest.run(settings) == 0
    # Seven records that an ingest knows and has not read, then a topic with more records than the old one.
    send(broker.bootstrap, topic, [order(number, number) for number in range(20, 27)])
    with pytest.raises(PipelineError, match="stop here"):
        ingest.run(settings, reached=_stop_at("read"))
    delete(broker, topic)
    create(broker, topic)
    send(broker.bootstrap, topic, [order(number, number) for number in range(200, 260)])
    send(broker.bootstrap, other, [order(number, number) for number in range(110, 115)])
    with pytest.raises(PipelineError, match=f"{topic}: deleted and recreated"):
        ingest.run(settings)
    assert numbers_of(settings) == [*range(20), *range(100, 110)]
    settings = replace(settings, on_recreated_topic="continue")
    assert ingest.run(settings) == 0
    assert numbers_of(settings) == [*range(20), *range(100, 115), *range(200, 260)]
    before, after = ledger_rows(settings)
    assert [before.lost, after.lost] == [0, 7]
    assert after.start_offsets == {topic: {0: 0, 1: 0}, other: before.end_offsets[other]}
    assert ingest.run(settings) == 0
    assert len(ledger_rows(settings)) == 2, "nothing is left"


@pytest.mark.usefixtures("spark")
def test_events_repeated_in_a_recreated_topic_are_duplicates(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), on_recreated_topic="continue")
    create(broker, topic)
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    assert ingest.run(settings) == 0
    delete(broker, topic)
    create(broker, topic)
    send(broker.bootstrap, topic, [order(number, number) for number in range(25)])
    with pytest.raises(PipelineError, match="stop here"):
        ingest.run(settings, reached=_stop_at("rows: files written"))
    assert ingest.run(settings) == 0
    assert numbers_of(settings) == list(range(25))
    assert [(row.good, row.duplicates) for row in ledger_rows(settings)] == [(20, 0), (5, 20)]


def ledger_rows(settings: Settings) -> list[LedgerRow]:
    return Ledger(Places.of(settings).ledger).rows()


def _stop_at(point: str):  # type: ignore[no-untyped-def]
    def reached(now: str) -> None:
        if now == point:
            raise PipelineError("stop here")

    return reached


@pytest.mark.usefixtures("spark")
def test_a_running_ingest_waits_for_a_topic_to_be_recreated(
    broker: BrokerThread, orders: Settings, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    logged = ""

    def is_missed() -> bool:
        nonlocal logged
        logged += capfd.readouterr().err
        return f"{topic}: read before, but deleted now; waiting for it to be recreated" in logged

    settings = replace(orders, trigger="0 seconds", on_recreated_topic="continue")
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    with IngestThread(settings) as job:
        job.wait_for(lambda: len(ledger_rows(settings)) > 0)
        delete(broker, topic)
        job.wait_for(is_missed)
        create(broker, topic)
        send(broker.bootstrap, topic, [order(number, number) for number in range(200, 290)])
        job.wait_for(lambda: sum(row.good for row in ledger_rows(settings)) >= 110)
        job.stop()
    assert numbers_of(settings) == [*range(20), *range(200, 290)]


@pytest.mark.usefixtures("spark")
def test_a_topic_recreated_during_a_batch_is_read_from_its_beginning(
    broker: BrokerThread, orders: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(orders, on_recreated_topic="continue")
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(number, number) for number in range(100, 107)])
    looks = iter(range(1, 1000))
    looked = Runner.look

    def look_and_meet_another(runner: Runner) -> Topics:
        if next(looks) == 3:  # Of the batch, after it has read the seven.
            delete(broker, topic)
            create(broker, topic)
            send(broker.bootstrap, topic, [order(number, number) for number in range(200, 290)])
        return looked(runner)

    monkeypatch.setattr(Runner, "look", look_and_meet_another)
    with IngestThread(replace(settings, trigger="0 seconds")) as job:
        job.wait_for(lambda: sum(row.good for row in ledger_rows(settings)) >= 110)
        job.stop()
    assert numbers_of(settings) == [*range(20), *range(200, 290)]
    assert [(row.rows_in, row.lost) for row in ledger_rows(settings)] == [(20, 0), (90, 7)]


@pytest.mark.usefixtures("spark")
def test_a_topic_that_was_deleted_or_never_existed_is_a_clear_error(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    with pytest.raises(PipelineError, match=f"topic {topic} does not exist"):
        ingest.run(orders)
    with pytest.raises(PipelineError, match=r"no topic matches nothing-.\*"):
        ingest.run(replace(orders, topics=(), topics_pattern="nothing-.*"))
    send(broker.bootstrap, topic, [order(1, 1)])
    assert ingest.run(orders) == 0
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_topics([topic])
    admin.close()
    with pytest.raises(PipelineError, match=f"{topic}: read before, but deleted now"):
        ingest.run(orders)


@pytest.mark.usefixtures("spark")
def test_deleted_records_stop_the_ingest_or_are_counted_as_lost(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    assert ingest.run(orders) == 0
    send(broker.bootstrap, topic, [order(number, number) for number in range(20, 40)])
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_records({TopicPartition(topic, 0): 16})
    admin.close()
    with pytest.raises(PipelineError, match=f"{topic}-0: offsets 10 to 15 were deleted"):
        ingest.run(orders)
    settings = replace(orders, on_data_loss="continue")
    assert ingest.run(settings) == 0
    rows = check_ledger(settings)
    assert [row.lost for row in rows] == [0, 6]
    assert sum(row.good for row in rows) == 34


@pytest.mark.usefixtures("spark")
def test_topics_by_pattern_are_read_and_new_topics_are_found(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    settings = replace(orders, topics=(), topics_pattern=rf"{topic}-\p{{Digit}}+")
    for number in (1, 2):
        send(broker.bootstrap, f"{topic}-{number}", [order(number, number)])
        send(broker.bootstrap, f"{topic}-x{number}", [order(99, number)])
        assert ingest.run(settings) == 0
    assert numbers_of(settings) == [1, 2]
    check_ledger(settings)

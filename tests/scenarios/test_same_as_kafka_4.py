"""The same requests to Apache Kafka 4.4 and to ours, of APIs and versions that Kafka 3.9 does not know.

As `test_same_as_kafka.py`, which compares the others with 3.9; the cases are in `same_as_kafka/newer_cases.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.broker.handlers.api_table import api_table
from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.control import apache_node
from tests.scenarios.same_as_kafka.case import differences_of
from tests.scenarios.same_as_kafka.newer_cases import CASES
from tests.scenarios.same_as_kafka.peer import Peer
from tests.spawned_broker import spawned_broker

RUNS = [(number, version) for number, case in enumerate(CASES) for version in case.versions]
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_control: list[str]) -> Iterator[str]:
    """A node of Kafka 4.4; yields its address."""
    with apache_node(kafka_control, tmp_path_factory.mktemp("kafka"), SETTINGS, release="4.4.0") as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An Odradek broker with the same settings; yields its address."""
    with spawned_broker(tmp_path_factory.mktemp("ours"), settings={**SETTINGS, "broker.id": "1"}) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize(
    ("number", "version"), RUNS, ids=[f"{CASES[number].name}-v{version}" for number, version in RUNS]
)
def test_both_brokers_answer_the_same_when(number: int, version: int, kafka: str, ours: str) -> None:
    comparison, _ = differences_of(CASES[number], version, f"{number}-{version}", kafka, ours)
    assert not comparison.unexplained, "\n".join(comparison.unexplained)


def test_every_listed_version_is_one_of_kafkas_or_older(kafka: str) -> None:
    peer = Peer(kafka, "versions", 0)
    try:
        answer = peer.ask(ApiKey.API_VERSIONS, {})
    finally:
        peer.close()
    newest = {entry["ApiKey"]: entry["MaxVersion"] for entry in answer["ApiKeys"]}
    for row in api_table().client_rows():
        assert row.served.highest <= newest[row.key], row.key.name

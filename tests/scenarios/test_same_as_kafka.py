"""The same requests to Apache Kafka in ZooKeeper mode and to ours: every field of every answer is compared.

The cases are in `same_as_kafka/`, each named by what it compares; `known.py` there lists the intended differences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from odradek.broker.handlers.api_table import api_table
from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.control import apache_broker
from tests.beside_kafka.known import Known
from tests.protocol.vector_files import table
from tests.scenarios.same_as_kafka import (
    admin_cases,
    cluster_cases,
    committed_offset_cases,
    config_cases,
    fetch_cases,
    membership_cases,
    offset_cases,
    produce_cases,
    topic_cases,
    transaction_cases,
    transactional_log_cases,
)
from tests.scenarios.same_as_kafka.case import Case, differences_of
from tests.scenarios.same_as_kafka.known import KNOWN
from tests.scenarios.same_as_kafka.peer import Peer
from tests.spawned_broker import free_port, spawned_broker
from tests.zookeeper import real_zookeeper

CASES: list[Case] = [
    case
    for module in (
        topic_cases,
        config_cases,
        produce_cases,
        fetch_cases,
        offset_cases,
        cluster_cases,
        admin_cases,
        committed_offset_cases,
        membership_cases,
        transactional_log_cases,
        transaction_cases,
    )
    for case in module.CASES
]
RUNS = [(number, version) for number, case in enumerate(CASES) for version in case.versions]
SETTINGS = {
    "auto.create.topics.enable": "true",
    "broker.id": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}

OF_KRAFT = {
    ApiKey.UPDATE_FEATURES,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""Kafka 3.9 serves these only without ZooKeeper."""
NEWEST = {api["key"]: api["maxVersion"] for api in table("apis.json") if api["key"] not in OF_KRAFT}
"""The newest versions of Kafka 3.9; test_same_as_kafka_4.py compares newer ones."""

met: set[Known] = set()
compared: set[tuple[int, int]] = set()
asked: set[tuple[ApiKey, int]] = set()
attempts: Counter[tuple[int, int]] = Counter()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_control: list[str]) -> Iterator[str]:
    """A Kafka broker with its ZooKeeper; yields its address."""
    directory = tmp_path_factory.mktemp("kafka")
    with (
        real_zookeeper.running(kafka_control, directory / "zookeeper") as zookeeper,
        apache_broker(kafka_control, zookeeper, directory / "broker", SETTINGS, broker_id="0") as port,
    ):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An Odradek broker with the same settings, and with the levels of features that Kafka 3.9 has; yields its address."""
    directory = tmp_path_factory.mktemp("ours")
    port = free_port()
    address = f"PLAINTEXT://127.0.0.1:{port}"
    settings = {**SETTINGS, "listeners": address, "advertised.listeners": address, "log.dirs": str(directory / "data")}
    settings["odradek.initial.features"] = "group.version=0,transaction.version=0"
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with spawned_broker(directory / "data", port=port, config=file) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize(
    ("number", "version"), RUNS, ids=[f"{CASES[number].name}-v{version}" for number, version in RUNS]
)
def test_both_brokers_answer_the_same_when(number: int, version: int, kafka: str, ours: str) -> None:
    attempts[number, version] += 1
    prefix = f"{number}-{version}-{attempts[number, version]}"  # --reruns: no topic of the first
    comparison, served = differences_of(CASES[number], version, prefix, kafka, ours)
    met.update(comparison.met)
    asked.update(served)
    compared.add((number, version))
    assert not comparison.unexplained, "\n".join(comparison.unexplained)


def test_every_version_of_clients_that_kafka_lists_is_listed(kafka: str, ours: str) -> None:
    theirs, own = (_advertised(bootstrap) for bootstrap in (kafka, ours))
    assert own
    for key in own.keys() & theirs.keys():
        assert own[key][0] == theirs[key][0] <= theirs[key][1] <= own[key][1], key


def _advertised(bootstrap: str) -> dict[int, tuple[int, int]]:
    peer = Peer(bootstrap, "versions", 0)
    try:
        answer = peer.ask(ApiKey.API_VERSIONS, {})
    finally:
        peer.close()
    return {entry["ApiKey"]: (entry["MinVersion"], entry["MaxVersion"]) for entry in answer["ApiKeys"]}


@pytest.mark.usefixtures("kafka")
def test_every_served_version_was_compared() -> None:
    """Passes without a check unless all cases ran before it."""
    if len(compared) == len(RUNS):
        both = {
            (row.key, version)
            for row in api_table().client_rows()
            for version in range(row.served.highest + 1)
            if version <= NEWEST.get(row.key, -1)
        }
        assert both - asked == {(ApiKey.FETCH, version) for version in range(4)}, "these return no batches here"


@pytest.mark.usefixtures("kafka")
def test_every_known_difference_still_exists() -> None:
    """Passes without a check unless all cases ran before it."""
    if len(compared) == len(RUNS):
        assert [known for known in KNOWN if known not in met and not known.is_a_race] == []

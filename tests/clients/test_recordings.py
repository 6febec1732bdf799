"""Clients of Apache Kafka 3.9.1 and 4.4.0, recorded, get the same answers from Odradek.

tests/vectors/recordings has a recording of each client, with its topics, groups and transactions, and of each
application of tests/clients/applications: on Spring Kafka, Kafka Streams and FastStream.
tests/clients/recording/test_recorded_clients.py sends them without the programs. They are recorded by

ODRADEK_RECORD=1 pytest --kinds=quick,programs tests/clients/test_recordings.py    # with $KAFKA_CONTROL, $KAFKA_TOOLS
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import recorded, replayed
from tests.beside_kafka.control import SMALL_JVM, apache_node
from tests.beside_kafka.recordings import IS_RECORDING
from tests.clients import program_clients, recorded_workloads
from tests.clients.members.watch import until_coordinators
from tests.clients.recording.known import unexplained
from tests.clients.recording.recorded_clients import RECORDINGS, SETTINGS
from tests.spawned_broker import spawned_broker

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def kafka(tmp_path: Path, kafka_control: list[str]) -> Iterator[str]:
    """A new broker of Apache Kafka whose coordinators serve; yields its address."""
    with apache_node(kafka_control, tmp_path / "kafka", SETTINGS) as port:
        until_coordinators(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"


@pytest.fixture
def newer_kafka(tmp_path: Path, kafka_control: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same of 4.4.0, and of Kafka's tools."""
    monkeypatch.setenv("KAFKA_VERSION", "4.4.0")
    with apache_node(kafka_control, tmp_path / "kafka", SETTINGS) as port:
        until_coordinators(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"


def compare(name: str, file: Path, directory: Path) -> None:
    """Sends a recording to a new Odradek, and keeps it if asked to."""
    with spawned_broker(directory / "data", SETTINGS) as broker:
        until_coordinators(broker.bootstrap)
        differences = replayed(file, broker.bootstrap)
    assert not unexplained(differences), "\n".join(unexplained(differences))
    if IS_RECORDING:
        RECORDINGS.mkdir(exist_ok=True)
        shutil.copyfile(file, RECORDINGS / f"{name}.rec")


def test_kafka_python_gets_the_answers_that_kafka_has_given(kafka: str, tmp_path: Path) -> None:
    file = tmp_path / "kafka-python.rec"
    with recorded(kafka, file) as proxy:
        recorded_workloads.kafka_python(proxy)
    compare("kafka-python", file, tmp_path)


def test_librdkafka_gets_the_answers_that_kafka_has_given(kafka: str, tmp_path: Path) -> None:
    file = tmp_path / "librdkafka.rec"
    with recorded(kafka, file) as proxy:
        recorded_workloads.librdkafka(proxy)
    compare("librdkafka", file, tmp_path)


def test_the_java_client_gets_the_answers_that_kafka_has_given(
    kafka: str, java_tools: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPTS", SMALL_JVM)
    file = tmp_path / "java.rec"
    with recorded(kafka, file) as proxy:
        recorded_workloads.java(java_tools, proxy)
    compare("java", file, tmp_path)


def test_librdkafka_gets_the_answers_of_the_newer_protocol_that_kafka_has_given(
    newer_kafka: str, tmp_path: Path
) -> None:
    file = tmp_path / "librdkafka-4.4.rec"
    with recorded(newer_kafka, file) as proxy:
        recorded_workloads.newer_librdkafka(proxy)
    compare("librdkafka-4.4", file, tmp_path)


def test_the_java_client_gets_the_answers_of_the_newer_protocols_that_kafka_has_given(
    newer_kafka: str, java_tools: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPTS", SMALL_JVM)
    file = tmp_path / "java-4.4.rec"
    with recorded(newer_kafka, file) as proxy:
        recorded_workloads.newer_java(java_tools, proxy)
    compare("java-4.4", file, tmp_path)


def test_franz_go_gets_the_answers_that_kafka_has_given(kafka: str, franz_go: Path, tmp_path: Path) -> None:
    file = tmp_path / "franz-go.rec"
    with recorded(kafka, file) as proxy:
        recorded_workloads.franz_go(franz_go, proxy)
    compare("franz-go", file, tmp_path)


def test_a_spring_service_gets_the_answers_that_kafka_has_given(
    kafka: str, spring_shop: list[str], tmp_path: Path
) -> None:
    record_application("spring", spring_shop, kafka, tmp_path)


def test_a_streams_application_gets_the_answers_that_kafka_has_given(
    kafka: str, streams_word_count: list[str], tmp_path: Path
) -> None:
    record_application("streams", streams_word_count, kafka, tmp_path)


def test_a_faststream_service_gets_the_answers_that_kafka_has_given(
    kafka: str, faststream_shop: list[str], tmp_path: Path
) -> None:
    record_application("faststream", faststream_shop, kafka, tmp_path)


def record_application(name: str, command: list[str], kafka: str, directory: Path) -> None:
    """The application says at its end that all has happened that should."""
    file = directory / f"{name}.rec"
    with recorded(kafka, file) as proxy:
        assert program_clients.run([*command, proxy]).splitlines()[-1] == b"done"
    compare(name, file, directory)

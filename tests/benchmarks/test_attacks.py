"""The attacks are valid requests, and a concurrent client measures its round trips."""

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.attacks import (
    LISTED,
    TOPIC,
    Ground,
    append_to_list,
    attacks,
    create_topics,
    describe_configs,
    stay_idle,
)
from benchmarks.beside_attacks import Client, Felt, measure, peak_memory, table
from benchmarks.contestants import KAFKA, Kind, Odradek
from benchmarks.healthy_client import Measured, Records
from benchmarks.healthy_user import SIZES, User
from benchmarks.unfinished import hold, unfinished_login, unfinished_produce
from benchmarks.wire import call, create_topic, decoded, delete_topic, errors_in, receive
from odradek.protocol.compiler import read
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from odradek.protocol.messages.registry import request_class
from odradek.testing import BrokerThread
from odradek.testing.certificates import trusted


@pytest.fixture
def thread() -> Iterator[BrokerThread]:
    with tempfile.TemporaryDirectory() as directory, BrokerThread(data_dir=Path(directory) / "data") as thread:
        yield thread


@pytest.mark.parametrize("frame", [describe_configs(), create_topics(), append_to_list()])
def test_an_attack_is_one_valid_frame(frame: bytes) -> None:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (4, 6))
    _, position = read(RequestHeader, request_header_version(key, version), frame, 4)
    assert read(request_class(key), version, frame, position)[1] == len(frame)


def test_attack_names_are_unique() -> None:
    names = [attack.name for attack in attacks()]
    assert len(set(names)) == len(names) >= 8


def test_a_growing_list_stays_within_its_allowed_length(thread: BrokerThread) -> None:
    port = int(thread.bootstrap.rpartition(":")[2])
    create_topic(port, TOPIC)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(append_to_list())
            assert errors_in(decoded(receive(connection), 44, 1)) == set()
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=[LISTED]
    )
    answer = call(port, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4)
    assert 32_000 < len(answer.results[0].configs[0].value or "") <= 32_767


def test_a_concurrent_client_counts_its_round_trips(thread: BrokerThread) -> None:
    port = int(thread.bootstrap.rpartition(":")[2])
    create_topic(port, "healthy")
    client = Client("records", port, "healthy")
    try:
        taken, failed = client.round_trips()
        assert taken
        assert all(each > 0 for each in taken)
        assert failed == {}
        assert len(client.round_trips()[0]) >= 1
    finally:
        client.close()


def test_failed_round_trips_are_counted_by_error(thread: BrokerThread) -> None:
    port = int(thread.bootstrap.rpartition(":")[2])
    create_topic(port, "healthy")
    client = Measured(Records(port, "healthy"))
    client.round_trip()
    delete_topic(port, "healthy")
    client.round_trip()
    thread.stop()
    client.round_trip()
    client.round_trip()
    reported = json.loads(client.reported())
    assert len(reported["taken"]) == 1
    assert reported["failed"].pop("UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert sum(reported["failed"].values()) == 2
    assert json.loads(client.reported()) == {"taken": [], "failed": {}}


def test_silent_connections_stay_open_until_the_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        until = time.monotonic() + 0.05
        assert stay_idle(3)(server.getsockname()[1], b"", until) == 0
        assert time.monotonic() >= until
        for _ in range(3):
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1) == b""


@pytest.mark.parametrize(("frame", "missing"), [(unfinished_login(), 5_000), (unfinished_produce(), 1)])
def test_an_unfinished_frame_begins_as_a_valid_one_and_lacks_its_end(frame: bytes, missing: int) -> None:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4 + missing
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (4, 6))
    read(RequestHeader, request_header_version(key, version), frame, 4)


def test_clients_that_hold_unfinished_frames_connect_again_when_they_are_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as attacker:
        until = time.monotonic() + 2
        sent = attacker.submit(hold(1), server.getsockname()[1], b"begun", until)
        for _ in range(2):
            connection, (address, _) = server.accept()
            with connection:
                assert address == "127.0.0.2"
                assert connection.recv(10) == b"begun"
        assert sent.result() >= 10


def test_a_healthy_user_logs_in_and_produces_each_size(tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_text(trusted())
    with BrokerThread(security="SASL_SSL") as secured:
        secured.seed({"healthy": [b"first"]})
        with closing(User(int(secured.bootstrap.rpartition(":")[2]), "healthy", str(authority))) as user:
            for _ in SIZES:
                user.round_trip()


def test_memory_of_a_process_is_measured_until_it_ends() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with peak_memory(process.pid) as peak:
            process.kill()
            process.wait()
        assert peak[0] >= 0


def test_attacks_on_the_metrics_port_skip_brokers_without_one(tmp_path: Path) -> None:
    of_metrics = [attack for attack in attacks() if attack.ground is Ground.METRICS]
    kafka = Kind(KAFKA, Odradek)  # it would fail to start as Kafka, and is not started
    assert measure(kafka, of_metrics, 1, tmp_path) == [None, None]
    assert not list(tmp_path.iterdir())


def test_the_table_has_a_row_for_each_attack() -> None:
    rest = Felt.of("none", [1.0] * 99 + [50.0], {})
    assert rest == Felt("none", 1.0, rest.p99, 50.0, {}, 0, 0)
    assert 1.0 < (rest.p99 or 0) <= 50.0
    large = Felt.of("large", [2.0] * 10, {"TimeoutError": 2}, 3_000_000, 10)
    deadly = Felt.of("deadly", [], {"ConnectionRefusedError": 7})._replace(has_ended=True)
    lines = table({"odradek": [rest, large, deadly], "kafka": [rest, None, rest]}).splitlines()
    assert lines[3] == "| large | 2.0 / 2 / 2 | 2 | +3 | - | - | - |"
    assert lines[4].startswith("| deadly | no answer | 7 | the broker ended | 1.0 /")
    assert lines[-2:] == ["odradek, large: 2 x TimeoutError", "odradek, deadly: 7 x ConnectionRefusedError"]
    assert len(table({"kafka": [rest, None]}).splitlines()) == 3

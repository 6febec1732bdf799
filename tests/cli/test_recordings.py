"""record, show, replay and compare, as a user calls them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from odradek.testing import BrokerThread, recorded
from tests.cli.conftest import Odradek
from tests.patience import PATIENCE_S
from tests.shown_secrets import look_into

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def work(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="writer")
    producer.send("orders", b"an order", key=b"k").get(timeout=PATIENCE_S)
    producer.send("bills", b"a bill").get(timeout=PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=bootstrap, client_id="reader", group_id="g", auto_offset_reset="earliest"
    )
    assert next(consumer).value == b"an order"
    consumer.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "orders.rec"
    with BrokerThread(SETTINGS) as broker, recorded(broker.bootstrap, path) as proxy:
        work(proxy)
    return path


@contextmanager
def recording(bootstrap: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`odradek record` as a process, and its address."""
    command = [sys.executable, "-m", "odradek.cli", "record", "--upstream", bootstrap, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().removeprefix("ready ").strip()
    finally:
        process.kill()
        process.communicate()


def test_record_prints_its_address_and_at_the_end_what_it_has_recorded(tmp_path: Path, run_odradek: Odradek) -> None:
    path = tmp_path / "orders.rec"
    options = ("--to", str(path), "--listen", "127.0.0.1:0")
    with BrokerThread(SETTINGS) as broker, recording(broker.bootstrap, *options) as (process, address):
        work(address)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    look_into(err, "log of a proxy")
    found = re.search(r"orders.rec: (\d+) connections, (\d+) frames, (\d+) bytes$", err.strip())
    assert found is not None, err
    assert path.stat().st_mode & 0o077 == 0
    status, out, err = run_odradek("show", str(path), "--brief")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == int(found[2])


def test_record_needs_a_new_file_and_an_address(file: Path, run_odradek: Odradek) -> None:
    status, _, err = run_odradek("record", "--upstream", "127.0.0.1:1", "--to", str(file), "--listen", "127.0.0.1:0")
    assert (status, err) == (1, f"odradek: {file} exists already: a recording needs a new file\n")
    new = str(file) + ".new"
    status, _, err = run_odradek("record", "--upstream", "127.0.0.1:none", "--to", new)
    assert (status, err) == (1, "odradek: --upstream: '127.0.0.1:none' is not HOST:PORT\n")
    status, _, err = run_odradek("record", "--upstream", "127.0.0.1:1", "--to", new, "--listen", "here")
    assert (status, err) == (1, "odradek: --listen: 'here' is not HOST:PORT\n")
    assert not Path(new).exists()


def test_a_proxy_that_logs_in_listens_on_loopback_only(tmp_path: Path, run_odradek: Odradek) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security."
        'plain.PlainLoginModule required username="alice" password="alice-secret";\n'
    )
    arguments = ["--upstream", "127.0.0.1:1", "--to", str(tmp_path / "file"), "--command-config", str(properties)]
    status, _, err = run_odradek("record", *arguments, "--listen", "0.0.0.0:0")
    assert status == 1
    assert "--listen 0.0.0.0:0 is not a loopback address: every client there would have the rights of alice" in err
    assert "alice-secret" not in err


def test_show_prints_all_fields_and_records(file: Path, run_odradek: Odradek) -> None:
    status, out, err = run_odradek("show", str(file), "--api", "produce", "--topic", "orders", "--records")
    assert (status, err) == (0, "")
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert len(heads) == 2
    assert re.fullmatch(r"\d+\.\d{3} #\d+ -> Produce \d+ request, id \d+, client writer, \d+ bytes", heads[0])
    assert re.fullmatch(r"\d+\.\d{3} #\d+ <- Produce \d+ response, id \d+, client writer, \d+ bytes", heads[1])
    assert 'value "an order"' in out
    assert "BaseOffset: 0" in out
    assert "a bill" not in out


def test_show_filters_by_api_client_and_topic(file: Path, run_odradek: Odradek) -> None:
    def shown(*arguments: str) -> list[dict[str, object]]:
        status, out, _ = run_odradek("show", str(file), "--json", *arguments)
        assert status == 0
        return [json.loads(line) for line in out.splitlines()]

    everything = shown()
    assert {line["clientId"] for line in everything} >= {"writer", "reader"}
    assert {line["clientId"] for line in shown("--client", "reader")} == {"reader"}
    some = shown("--api", "JoinGroup", "--api", "SyncGroup")
    assert {line["api"] for line in some} == {"JoinGroup", "SyncGroup"}
    assert {line["direction"] for line in some} == {"request", "response"}
    of_bills = shown("--topic", "bills")
    assert {line["api"] for line in of_bills} >= {"Metadata", "Produce"}
    assert "Fetch" not in {line["api"] for line in of_bills}
    assert {line["api"] for line in shown("--topic", "orders")} >= {"Fetch", "OffsetCommit"}
    assert shown("--topic", "none") == []
    assert all(line["fields"] is not None for line in everything)


def test_show_knows_the_names_of_apis(file: Path, run_odradek: Odradek) -> None:
    status, _, err = run_odradek("show", str(file), "--api", "Fetsch")
    assert (status, err) == (
        1,
        "odradek: --api: no API is named 'Fetsch'; names are Kafka's, such as FindCoordinator\n",
    )


def test_a_torn_recording_is_shown_and_replayed_up_to_its_end(file: Path, tmp_path: Path, run_odradek: Odradek) -> None:
    torn = tmp_path / "torn.rec"
    torn.write_bytes(file.read_bytes()[:-3])
    status, out, err = run_odradek("show", str(torn), "--brief")
    assert (status, bool(out)) == (0, True)
    assert re.search(r"torn.rec was cut off: its last \d+ bytes, from byte \d+ on, are not a whole entry", err)
    with BrokerThread(SETTINGS) as broker:
        status, _, err = run_odradek("replay", str(torn), "--against", broker.bootstrap)
    assert status == 0
    assert "was cut off" in err


def test_what_is_no_recording_is_refused(tmp_path: Path, run_odradek: Odradek) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("a text")
    status, _, err = run_odradek("show", str(foreign))
    assert (status, err) == (1, f"odradek: {foreign} is not a recording of `odradek record`\n")
    status, _, err = run_odradek("replay", str(foreign), "--against", "127.0.0.1:1")
    assert (status, err) == (2, f"odradek: {foreign} is not a recording of `odradek record`\n")
    status, _, err = run_odradek("replay", str(tmp_path / "none"), "--against", "127.0.0.1:1")
    assert (status, "No such file" in err) == (2, True)


def test_replay_finds_no_difference_at_a_new_broker_and_some_at_a_used_one(file: Path, run_odradek: Odradek) -> None:
    with BrokerThread(SETTINGS) as broker:
        status, out, err = run_odradek("replay", str(file), "--against", broker.bootstrap)
        assert (status, out) == (0, "")
        assert re.fullmatch(r"\d+ requests sent, \d+ responses compared, (\d+ .*, .*, )?0 differences\n", err)
        status, out, err = run_odradek("replay", str(file), "--against", broker.bootstrap)
        assert status == 1
        assert re.search(rf"BaseOffset: recorded 0, {broker.bootstrap} 1$", out, re.MULTILINE)
        assert f"{len(out.splitlines())} differences" in err
        status, out, err = run_odradek("replay", str(file), "--against", broker.bootstrap, "--ignore", ".*")
        assert (status, out) == (0, "")
        assert re.search(r"0 differences, \d+ ignored", err)
        status, out, _ = run_odradek("replay", str(file), "--against", broker.bootstrap, "--json")
        found = [json.loads(line) for line in out.splitlines()]
        assert (status, {"where", "recorded", broker.bootstrap} <= found[0].keys()) == (1, True)


def test_replay_without_a_cluster_or_with_a_wrong_pattern_has_status_2(file: Path, run_odradek: Odradek) -> None:
    with BrokerThread() as broker:
        gone = broker.bootstrap
        status, _, err = run_odradek("replay", str(file), "--against", gone, "--ignore", "(")
        assert (status, "--ignore (: not a regular expression" in err) == (2, True)
    status, _, err = run_odradek("replay", str(file), "--against", gone)
    assert (status, f"cannot connect to {gone}" in err) == (2, True)


def test_compare_finds_what_two_clusters_answer_otherwise(file: Path, run_odradek: Odradek) -> None:
    with BrokerThread(SETTINGS) as one, BrokerThread(SETTINGS) as other:
        status, out, err = run_odradek("compare", one.bootstrap, other.bootstrap, str(file))
        assert (status, out) == (0, ""), err
    with BrokerThread(SETTINGS) as one, BrokerThread(SETTINGS, auto_create_topics_enable="false") as other:
        status, out, _ = run_odradek("compare", one.bootstrap, other.bootstrap, str(file), "--timeout-ms", "2000")
        assert status == 1
        assert re.search(rf"Metadata.*: {one.bootstrap} 0, {other.bootstrap} 3$", out, re.MULTILINE)


def test_requests_that_a_cluster_does_not_list_are_differences_and_counted(file: Path, run_odradek: Odradek) -> None:
    with BrokerThread(SETTINGS, odradek_as_version="2.0") as old:
        status, out, err = run_odradek("replay", str(file), "--against", old.bootstrap)
    unsent = re.findall(rf"#\d+ \w+ \d+: recorded 'sent', {old.bootstrap} 'not sent: .*'$", out, re.MULTILINE)
    assert status == 1
    assert f"{len(unsent)} requests left out where they are not listed" in err
    assert len(unsent) > 1


def test_compare_needs_two_clusters(file: Path, run_odradek: Odradek) -> None:
    status, _, err = run_odradek("compare", "127.0.0.1:1", "127.0.0.1:1", str(file))
    assert (status, err) == (2, "odradek: 127.0.0.1:1 is named twice: a cluster would be compared with itself\n")

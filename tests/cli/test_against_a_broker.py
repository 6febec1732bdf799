"""The commands against a running broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Odradek
from tests.spawned_broker import spawned_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spawned_broker(tmp_path_factory.mktemp("cli") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str, run_odradek: Odradek) -> Odradek:
    return lambda *arguments: run_odradek(*arguments, "--bootstrap-server", bootstrap)


def test_a_topic_is_created_described_and_deleted(odradek: Odradek) -> None:
    assert odradek("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=5") == (
        0,
        "life created\n",
        "",
    )
    status, out, _ = odradek("topics", "describe", "life")
    assert status == 0
    first, *partitions = out.splitlines()
    assert first.startswith("Topic: life\tTopicId: ")
    assert first.endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=5")
    assert [line.split("\t")[2:4] for line in partitions] == [
        ["Partition: 0", "Leader: 0"],
        ["Partition: 1", "Leader: 0"],
    ]
    assert odradek("topics", "alter", "life", "--partitions", "3")[:2] == (0, "life has 3 partitions\n")
    (described,) = json.loads(odradek("topics", "describe", "life", "--json")[1])
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert "life" in json.loads(odradek("topics", "list", "--json")[1])
    assert odradek("topics", "delete", "life")[:2] == (0, "life deleted\n")
    assert "life" not in odradek("topics", "list")[1].splitlines()


def test_creating_or_deleting_twice_is_an_error_without_the_flag(odradek: Odradek) -> None:
    odradek("topics", "create", "twice")
    status, out, err = odradek("topics", "create", "twice")
    assert (status, out) == (1, "")
    assert err.startswith("odradek: TOPIC_ALREADY_EXISTS: ")
    assert odradek("topics", "create", "twice", "--if-not-exists")[:2] == (0, "twice already exists\n")
    odradek("topics", "delete", "twice")
    status, _, err = odradek("topics", "delete", "twice")
    assert (status, err) == (1, "odradek: UNKNOWN_TOPIC_OR_PARTITION: There is no topic 'twice'\n")
    assert odradek("topics", "delete", "twice", "--if-exists")[:2] == (0, "twice does not exist\n")
    assert odradek("topics", "create", "never", "--validate-only")[1] == "never can be created\n"
    assert "never" not in odradek("topics", "list")[1].splitlines()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["create", "a/b"], "INVALID_TOPIC_EXCEPTION"),
        (["create", "x", "--replication-factor", "2"], "INVALID_REPLICATION_FACTOR"),
        (["create", "x", "--config", "no.such=1"], "INVALID_CONFIG"),
        (["describe", "missing"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["alter", "missing", "--partitions", "2"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_the_brokers_errors_are_shown_with_their_code(odradek: Odradek, arguments: list[str], code: str) -> None:
    status, out, err = odradek("topics", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"odradek: {code}: ")
    assert err.count("\n") == 1


def test_settings_are_changed_and_shown(odradek: Odradek) -> None:
    odradek("topics", "create", "set")
    change = ("configs", "alter", "--topic", "set", "--set", "retention.ms=7", "--set", "segment.bytes=2000")
    assert odradek(*change)[:2] == (0, "changed\n")
    assert odradek("configs", "describe", "--topic", "set")[1] == "retention.ms=7\ttopic\nsegment.bytes=2000\ttopic\n"
    assert odradek("configs", "alter", "--topic", "set", "--delete", "segment.bytes")[0] == 0
    odradek("configs", "alter", "--topic", "set", "--append", "cleanup.policy=compact")
    shown = json.loads(odradek("configs", "describe", "--topic", "set", "--json")[1])
    assert {name: one["value"] for name, one in shown.items()} == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "7",
    }
    everything = odradek("configs", "describe", "--topic", "set", "--all")[1].splitlines()
    assert "segment.bytes=1073741824\tdefault" in everything
    status, _, err = odradek("configs", "alter", "--topic", "set", "--set", "retention.ms=soon")
    assert status == 1
    assert err.startswith("odradek: INVALID_CONFIG: ")


def test_groups_and_client_metrics_have_settings_of_their_own(odradek: Odradek) -> None:
    for option, setting, source in (
        ("--group", "consumer.session.timeout.ms=46000", "group"),
        ("--client-metrics", "metrics=*", "client metrics"),
    ):
        assert odradek("configs", "alter", option, "n", "--set", setting)[0] == 0
        assert odradek("configs", "describe", option, "n")[1] == f"{setting}\t{source}\n"
        assert odradek("configs", "alter", option, "n", "--delete", setting.partition("=")[0])[0] == 0
        assert odradek("configs", "describe", option, "n")[1] == ""


def test_broker_settings_apply_to_topics_without_their_own(odradek: Odradek) -> None:
    odradek("topics", "create", "inherits")
    assert odradek("configs", "alter", "--cluster", "--set", "log.retention.ms=12345")[0] == 0
    assert odradek("configs", "describe", "--cluster")[1] == "log.retention.ms=12345\tdynamic cluster\n"
    assert "log.retention.ms=12345\tdynamic cluster" in odradek("configs", "describe", "--broker", "0")[1].splitlines()
    inherited = odradek("configs", "describe", "--topic", "inherits")[1]
    assert inherited == "retention.ms=12345\tdynamic cluster\n"
    assert odradek("configs", "alter", "--cluster", "--delete", "log.retention.ms")[0] == 0
    assert odradek("configs", "describe", "--topic", "inherits")[1] == ""


def test_consume_prints_the_keys_values_and_headers_that_produce_wrote(odradek: Odradek, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"a:1,b:2\tk1=v1\n\tk2=\n\tk3=NIL\r\n\tk4=v=4 \xc3\xa9")
    odradek("topics", "create", "echo", "--partitions", "2")
    written = odradek(
        *("produce", "echo", "--file", str(lines), "--headers", "--key-separator", "=", "--null", "NIL"),
        *("--partition", "1", "--timestamp", "1234", "--compression", "zstd", "--header", "all=x"),
    )
    assert written == (0, "", "4 records written to echo\n")
    status, out, err = odradek("consume", "echo", "--from-beginning", "--exit", "--json")
    assert (status, err) == (0, "4 records read from echo\n")
    every = {"name": "all", "value": "x"}
    place = {"topic": "echo", "partition": 1, "timestamp": 1234}
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            **place,
            "offset": 0,
            "key": "k1",
            "value": "v1",
            "headers": [every, {"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
        },
        {**place, "offset": 1, "key": "k2", "value": "", "headers": [every]},
        {**place, "offset": 2, "key": "k3", "value": None, "headers": [every]},
        {**place, "offset": 3, "key": "k4", "value": "v=4 é", "headers": [every]},
    ]
    show = ("--print-key", "--print-offset", "--print-partition", "--print-timestamp", "--print-headers")
    out = odradek("consume", "echo", "--from-beginning", "--max-messages", "1", *show, "--separator", "|")[1]
    assert out == "CreateTime:1234|Partition:1|Offset:0|all:x,a:1,b:2|k1|v1\n"
    form = r"%t/%p@%o\t%T %k=%v [%h] %%\n"
    out = odradek("consume", "echo", "--offset", "2", "--partition", "1", "--max-messages", "1", "--format", form)[1]
    assert out == "echo/1@2\t1234 k3=null [all:x] %\n"


def test_consume_reads_the_requested_range(odradek: Odradek, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(10)))
    odradek("topics", "create", "range")
    for time in ("1000", "2000"):
        odradek("produce", "range", "--file", str(lines), "--timestamp", time)

    def read(*where: str) -> list[str]:
        return odradek("consume", "range", "--format", r"%o\n", *where)[1].split()

    assert read("--from-beginning", "--exit") == [str(number) for number in range(20)]
    assert read("--offset", "18", "--exit") == ["18", "19"]
    assert read("--offset", "-3", "--exit") == ["17", "18", "19"]
    assert read("--offset", "-99", "--max-messages", "2") == ["0", "1"]
    assert read("--offset", "earliest", "--max-messages", "1") == ["0"]
    assert read("--from-timestamp", "1500", "--max-messages", "1") == ["10"]
    assert read("--from-timestamp", "2500", "--exit") == []
    assert read("--exit") == []
    assert read("--offset", "19", "--idle-ms", "400") == ["19"]
    status, _, err = odradek("consume", "range", "--offset", "soon")
    assert (status, err) == (1, "odradek: --offset soon: expected a number, earliest or latest\n")


def test_a_failed_produce_or_consume_prints_one_line(odradek: Odradek, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("no separator\n")
    odradek("topics", "create", "picky")
    for arguments, words in [
        (("produce", "picky", "--file", str(lines), "--key-separator", "="), "line 1: no key separator '='"),
        (("produce", "picky", "--file", str(lines), "--headers"), "line 1: no tab after the headers"),
        (("produce", "picky", "--file", str(tmp_path / "none")), f"cannot read {tmp_path}/none: No such file"),
        (("produce", "picky", "--file", str(lines), "--partition", "5"), "cannot write to picky: "),
        (("produce", "not/legal", "--file", str(lines)), "cannot write to not/legal: "),
        (("consume", "missing"), "UNKNOWN_TOPIC_OR_PARTITION: There is no topic 'missing'"),
        (("consume", "picky", "--partition", "5"), "picky has no partition 5: it has 1"),
    ]:
        status, out, err = odradek(*arguments)
        assert (status, out) == (1, "")
        assert err.startswith(f"odradek: {words}"), err
        assert err.count("\n") == 1


def test_produce_reads_stdin_and_a_closed_stdout_is_no_error(bootstrap: str) -> None:
    command = f"{sys.executable} -m odradek.cli"
    server = f"--bootstrap-server {bootstrap}"
    script = (
        f"set -e; seq 2000 | {command} produce piped {server}; "
        f"{command} consume piped --from-beginning --exit {server} | head -1"
    )
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
    assert result.stderr.startswith("2000 records written to piped\n")
    assert "Traceback" not in result.stderr

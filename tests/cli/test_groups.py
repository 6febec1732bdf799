"""`odradek groups` against a running broker, with groups that have members and groups without."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Partition

from odradek.cli.__main__ import main
from odradek.cli.group_reset import duration_ms, time_ms, whole_number
from tests.cli.conftest import Odradek
from tests.spawned_broker import spawned_broker

T = 1_700_000_000_000
"""The timestamp of the first record; each record is a second after the previous one."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    with spawned_broker(tmp_path_factory.mktemp("cli") / "data", settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str, run_odradek: Odradek) -> Odradek:
    """Runs `odradek groups` with the broker."""
    return lambda *arguments: run_odradek("groups", *arguments, "--bootstrap-server", bootstrap)


def a_topic(bootstrap: str, name: str, *counts: int) -> str:
    """Creates a topic with one partition for each of `counts`, the number of its records."""
    main(["topics", "create", name, "--partitions", str(len(counts)), "--bootstrap-server", bootstrap])
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(name, b"v", partition=partition, timestamp=T + 1000 * number)
    assert producer.flush(20) == 0
    return name


def committed_by(bootstrap: str, group: str, topic: str, **offsets: int) -> None:
    """`committed_by(..., p0=5)` commits offset 5 of partition 0, without a member."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    with closing(consumer):
        wanted = [Partition(topic, int(name[1:]), offset) for name, offset in offsets.items()]
        consumer.commit(offsets=wanted, asynchronous=False)


def rows(text: str) -> list[list[str]]:
    """The rows of the table, without its header."""
    return [line.split() for line in text.splitlines()[1:]]


def offsets_of(odradek: Odradek, group: str) -> dict[tuple[str, int], int]:
    (described,) = json.loads(odradek("describe", group, "--json")[1])
    return {(one["topic"], one["partition"]): one["current_offset"] for one in described["partitions"]}


def test_the_lag_of_every_partition_is_shown(bootstrap: str, odradek: Odradek) -> None:
    topic = a_topic(bootstrap, "lag", 10, 4)
    committed_by(bootstrap, "behind", topic, p0=3, p1=4)
    status, out, err = odradek("describe", "behind")
    assert (status, err) == (0, "")
    assert out.split("\n")[0].split()[:6] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
    ]
    assert rows(out) == [
        ["behind", "lag", "0", "3", "10", "7", "-", "-", "-"],
        ["behind", "lag", "1", "4", "4", "0", "-", "-", "-"],
    ]
    state, coordinator = rows(odradek("describe", "behind", "--state")[1])[0][3], "0"
    assert (state, rows(odradek("describe", "behind", "--state")[1])[0][1]) == ("Empty", coordinator)
    assert rows(odradek("describe", "behind", "--members")[1]) == []


def test_members_and_what_they_consume_are_shown(bootstrap: str, odradek: Odradek) -> None:
    topic = a_topic(bootstrap, "consumed", 5, 5)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "busy",
            "client.id": "worker",
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        consumer.commit(offsets=[Partition(topic, 0, 2)], asynchronous=False)
        (described,) = json.loads(odradek("describe", "busy", "--json")[1])
        (member,) = described["members"]
        assert (described["state"], described["protocol_type"]) == ("Stable", "consumer")
        assert (member["client_id"], member["group_instance_id"]) == ("worker", "one")
        assert member["partitions"] == ["consumed-0", "consumed-1"]
        first, second = rows(odradek("describe", "busy")[1])
        assert first == ["busy", "consumed", "0", "2", "5", "3", member["consumer_id"], member["host"], "worker"]
        assert second[2:6] == ["1", "-", "5", "-"]
        ((_, who, instance, _, _, count, partitions, *of_consumer_groups),) = rows(
            odradek("describe", "busy", "--members")[1]
        )
        assert (who, instance, count, partitions) == (member["consumer_id"], "one", "2", "consumed-0,consumed-1")
        assert of_consumer_groups == ["-"] * 4
        assert rows(odradek("describe", "busy", "--state")[1])[0][2:] == [
            described["protocol"],
            "Stable",
            "1",
            "classic",
            "-",
            "-",
        ]
        status, out, err = odradek("reset-offsets", "busy", "--topic", topic, "--to-latest", "--execute")
        assert (status, out) == (1, "")
        assert err == "odradek: the group 'busy' has members; its state is Stable\n"
        status, out, err = odradek("delete", "busy")
        assert (status, out, err) == (1, "", "odradek: NON_EMPTY_GROUP: The group 'busy' has members\n")
        assert "busy\tStable\tconsumer\tclassic" in odradek("list", "--state", "stable")[1].splitlines()
        assert "busy" not in odradek("list", "--state", "Empty")[1]


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (["--to-earliest"], (0, 0)),
        (["--to-latest"], (10, 4)),
        (["--to-current"], (3, 4)),
        (["--to-offset", "6"], (6, 4)),
        (["--shift-by", "-2"], (1, 2)),
        (["--shift-by", "-100"], (0, 0)),
        (["--shift-by", "2"], (5, 4)),
        (["--to-datetime", "2023-11-14T22:13:22.000"], (2, 2)),
        (["--to-datetime", "2023-11-14T23:13:22.001+01:00"], (3, 3)),
        (["--to-datetime", "2023-11-14T22:13:25Z"], (5, 4)),
        (["--by-duration", "P36500D"], (0, 0)),
        (["--by-duration", "PT0S"], (10, 4)),
    ],
)
def test_offsets_are_reset_only_with_execute(
    bootstrap: str, odradek: Odradek, goal: list[str], expected: tuple[int, int]
) -> None:
    topic = "moved"
    if topic not in {name for name, _ in offsets_of_all(odradek)}:
        a_topic(bootstrap, topic, 10, 4)
    committed_by(bootstrap, "mover", topic, p0=3, p1=4)
    status, out, err = odradek("reset-offsets", "mover", "--topic", topic, *goal)
    assert (status, err) == (0, "")
    *table, note = out.splitlines()
    assert note == "nothing changed; --execute commits the offsets"
    assert rows("\n".join(table)) == [["mover", topic, str(index), str(new)] for index, new in enumerate(expected)]
    assert offsets_of(odradek, "mover") == {(topic, 0): 3, (topic, 1): 4}
    status, out, _ = odradek("reset-offsets", "mover", "--all-topics", *goal, "--execute", "--json")
    assert [one["new_offset"] for one in json.loads(out)] == list(expected)
    assert tuple(offsets_of(odradek, "mover").values()) == expected


def offsets_of_all(odradek: Odradek) -> list[tuple[str, int]]:
    described: list[dict[str, Any]] = json.loads(odradek("describe", "--all", "--json")[1])
    return [(one["topic"], one["partition"]) for group in described for one in group["partitions"]]


def test_offsets_of_single_partitions_are_set_for_a_new_group(bootstrap: str, odradek: Odradek) -> None:
    topic = a_topic(bootstrap, "single", 5, 5, 5)
    status, _, err = odradek("reset-offsets", "fresh", "--topic", f"{topic}:0,2", "--to-offset", "4", "--execute")
    assert (status, err) == (0, "")
    assert offsets_of(odradek, "fresh") == {(topic, 0): 4, (topic, 2): 4}
    assert odradek("reset-offsets", "fresh", "--topic", topic, "--to-current", "--execute")[0] == 0
    assert offsets_of(odradek, "fresh") == {(topic, 0): 4, (topic, 1): 5, (topic, 2): 4}


def test_a_deleted_group_is_gone_with_its_offsets(bootstrap: str, odradek: Odradek) -> None:
    topic = a_topic(bootstrap, "gone", 1)
    committed_by(bootstrap, "leaves", topic, p0=1)
    assert "leaves" in {group["group_id"] for group in json.loads(odradek("list", "--json")[1])}
    assert odradek("delete", "leaves") == (0, "leaves deleted\n", "")
    status, out, err = odradek("delete", "leaves")
    assert (status, out, err) == (1, "", "odradek: GROUP_ID_NOT_FOUND: There is no group 'leaves'\n")
    assert odradek("delete", "leaves", "--if-exists") == (0, "leaves does not exist\n", "")
    assert odradek("describe", "leaves") == (1, "", "odradek: there is no group 'leaves'\n")
    assert "leaves" not in odradek("list")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "missing", "--to-latest"], "UNKNOWN_TOPIC_OR_PARTITION: There is no topic 'missing'"),
        (["--topic", "wrong:7", "--to-latest"], "there is no partition wrong-7"),
        (["--topic", "wrong:x", "--to-latest"], "--topic wrong:x: expected TOPIC:P,P..."),
        (["--topic", "wrong", "--shift-by", "1"], "the group 'g' has no offset of wrong-0 to shift"),
        (["--all-topics", "--to-latest"], "the group 'g' has no offsets; name topics with --topic"),
    ],
)
def test_offsets_that_cannot_be_reset_are_reported(
    bootstrap: str, odradek: Odradek, arguments: list[str], message: str
) -> None:
    main(["topics", "create", "wrong", "--if-not-exists", "--bootstrap-server", bootstrap])
    assert odradek("reset-offsets", "g", *arguments) == (1, "", f"odradek: {message}\n")


def test_describe_needs_group_names_or_all(odradek: Odradek) -> None:
    for arguments in (["describe"], ["describe", "g", "--all"]):
        assert odradek(*arguments) == (1, "", "odradek: groups describe needs the groups' names, or --all\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset-offsets", "g", "--to-latest"],
        ["reset-offsets", "g", "--all-topics"],
        ["reset-offsets", "g", "--all-topics", "--topic", "t", "--to-latest"],
        ["reset-offsets", "g", "--all-topics", "--to-latest", "--to-earliest"],
        ["reset-offsets", "g", "--all-topics", "--to-latest", "--dry-run", "--execute"],
        ["reset-offsets", "g", "--all-topics", "--to-offset", "-1"],
        ["reset-offsets", "g", "--all-topics", "--by-duration", "P"],
        ["reset-offsets", "g", "--all-topics", "--to-datetime", "tomorrow"],
        ["delete"],
        [],
    ],
)
def test_wrong_arguments_end_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["groups", *arguments])
    assert caught.value.code == 2
    assert "usage: odradek groups" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P7D", 604_800_000),
        ("PT12H", 43_200_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.001s", 1),
        ("PT0S", 0),
    ],
)
def test_durations_have_javas_format(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["P", "PT", "7D", "P7", "P1H", "P-1D", "PT1D", "P1DT", ""])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration_ms(text)


def test_times_are_in_utc_unless_they_name_a_zone() -> None:
    assert time_ms("2023-11-14T22:13:20.000") == T == time_ms("2023-11-15T00:13:20+02:00")
    for text in ("1969-12-31T23:59:59", "soon", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            time_ms(text)
    with pytest.raises(argparse.ArgumentTypeError):
        whole_number("1.5")

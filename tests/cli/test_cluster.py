"""`odradek cluster` against a cluster."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections.abc import Iterator

import pytest

from odradek.cli.cluster_watch import HOME_AND_CLEAR, Lines, Screen
from odradek.clients.admin.overview import BrokerOverview, ClusterOverview, PartitionOverview
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import ClusterThread
from tests.cli.conftest import Odradek

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread() as cluster:
        cluster.create_topic("t", assignments={0: [1, 2], 1: [2, 3]})
        yield cluster


@pytest.fixture
def odradek(cluster: ClusterThread, run_odradek: Odradek) -> Odradek:
    """Runs `odradek cluster` with the cluster."""
    return lambda *arguments: run_odradek("cluster", *arguments, "--bootstrap-server", cluster.bootstrap)


def test_describe_shows_brokers_the_controller_leaders_and_isrs(cluster: ClusterThread, odradek: Odradek) -> None:
    status, out, err = odradek("describe")
    assert (status, err) == (0, "")
    head, counts, _, columns, *brokers, gap, partition_columns, first, second = out.splitlines()
    assert re.fullmatch(r"cluster \S{22}: 3 brokers, controller \d, 1 topics, 2 partitions", head)
    assert f"controller {cluster.controller}," in head
    assert counts == "0 offline, 0 under-replicated, 0 reassigned"
    assert columns.split() == ["BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN-SYNC", "ROLE"]
    assert [line.split()[:6] for line in brokers] == [
        ["1", cluster.bootstrap_of(1), "-", "1", "1", "1"],
        ["2", cluster.bootstrap_of(2), "-", "1", "2", "2"],
        ["3", cluster.bootstrap_of(3), "-", "0", "1", "1"],
    ]
    assert [line.split()[6] for line in brokers].count("controller") == 1
    assert gap == ""
    assert partition_columns.split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "STATE"]
    assert first.split() == ["t-0", "1", "0", "1,2", "1,2", "-"]
    assert second.split() == ["t-1", "2", "0", "2,3", "2,3", "-"]


def test_describe_shows_the_problems_after_a_failure(cluster: ClusterThread, odradek: Odradek) -> None:
    status, out, _ = odradek("describe", "--problems")
    assert status == 0
    assert "t-0" not in out
    cluster.kill(1)
    cluster.wait_for_isr("t", 0, {2})
    cluster.wait_until_stable()
    status, out, _ = odradek("describe", "--problems")
    assert status == 0
    assert "0 offline, 1 under-replicated, 0 reassigned" in out
    *_, partition, gap, columns, reason = out.splitlines()
    assert partition.split() == ["t-0", "2", "1", "1,2", "2", "under-replicated"]
    assert (gap, columns.split()) == ("", ["BROKER", "OUT", "BECAUSE", "PARTITIONS"])
    assert reason == "1       1    the broker is not in the cluster  t-0"
    cluster.kill(2)
    cluster.wait_until_stable()
    status, out, _ = odradek("describe", "--json")
    assert status == 0
    found = json.loads(out[out.index("{\n") :])
    assert (found["controller"], found["offline"], found["under_replicated"], found["reassigned"]) == (3, 1, 2, 0)
    assert [broker["broker_id"] for broker in found["brokers"]] == [3]
    assert found["partitions"][0] == {
        "topic": "t",
        "partition": 0,
        "leader": None,
        "leader_epoch": found["partitions"][0]["leader_epoch"],
        "replicas": [1, 2],
        "isr": [2],
        "adding": [],
        "removing": [],
        "problems": ["offline"],
    }
    assert found["partitions"][1]["problems"] == ["under-replicated"]
    assert found["out_of_sync"] == [
        {"broker": 1, "reason": "the broker is not in the cluster", "partitions": [["t", 0]]},
        {"broker": 2, "reason": "the broker is not in the cluster", "partitions": [["t", 0], ["t", 1]]},
    ]


def test_describe_without_a_broker_fails_in_one_line(run_odradek: Odradek) -> None:
    status, out, err = run_odradek("cluster", "describe", "--bootstrap-server", "127.0.0.1:1")
    assert (status, out) == (1, "")
    assert err == "odradek: cannot connect to 127.0.0.1:1: Connection refused\n"


def test_watch_prints_each_change_as_a_line_where_there_is_no_terminal(
    cluster: ClusterThread, odradek: Odradek
) -> None:
    def fail_and_recover() -> None:
        time.sleep(0.3)
        cluster.kill(1)
        cluster.wait_until_stable()
        time.sleep(0.5)
        cluster.start(1)

    breaker = threading.Thread(target=fail_and_recover)
    breaker.start()
    status, out, _ = odradek("watch", "--interval-ms", "100", "--times", "40")
    breaker.join()
    assert status == 0
    head, *_ = out.splitlines()
    news = [line.split("  ", 1)[1] for line in out.splitlines() if re.match(r"\d\d:\d\d:\d\d  ", line)]
    assert "3 brokers" in head
    assert "broker 1: left" in news
    assert f"broker 1: joined at {cluster.bootstrap_of(1)}" in news
    assert news.index("broker 1: left") < news.index(f"broker 1: joined at {cluster.bootstrap_of(1)}")
    assert "t-0: leader 1 -> 2 in epoch 1, ISR 1,2 -> 2" in news
    assert [line for line in news if line.startswith("t-0: ") and line.endswith("ISR 2 -> 1,2")]


def test_watch_goes_on_when_no_broker_is_reached(run_odradek: Odradek) -> None:
    arguments = ("watch", "--interval-ms", "10", "--times", "3", "--bootstrap-server", "127.0.0.1:1")
    status, out, _ = run_odradek("cluster", *arguments)
    assert status == 0
    (line,) = out.splitlines()
    assert line.endswith("  not reached: cannot connect to 127.0.0.1:1: Connection refused")


def overview(isr: tuple[int, ...], name: str = "t") -> ClusterOverview:
    key = TopicPartition(name, 0)
    brokers = {1: BrokerOverview(1, "host", 9092, None, 1, 1, 1)}
    return ClusterOverview("id", 1, brokers, {key: PartitionOverview(key, 1, 0, (1, 2), isr)}, True)


def test_the_screen_shows_the_state_above_the_last_changes() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.show("10:00:00", overview((1, 2)), [])
    screen.show("10:00:01", overview((1,)), [f"change {number}" for number in range(12)])
    screen.show("10:00:02", None, ["not reached: gone"])
    _, first, second, third = out.getvalue().split(HOME_AND_CLEAR)
    assert "t-0" not in first
    assert re.search(r"t-0 +1 +0 +1,2 +1 +under-replicated", second)
    assert re.findall(r"change \d+", second) == [f"change {number}" for number in range(2, 12)]
    assert third.startswith("10:00:02  not reached; as it was:\ncluster id: 1 brokers")
    assert third.rstrip().endswith("10:00:02  not reached: gone")


def test_a_screen_that_is_too_small_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "12")
    monkeypatch.setenv("COLUMNS", "20")
    partitions = {
        key: PartitionOverview(key, 1, 0, (1, 2), (1,)) for key in (TopicPartition("t", n) for n in range(50))
    }
    out = io.StringIO()
    Screen(out).show("10:00:00", overview((1,))._replace(partitions=partitions), ["news"])
    lines = out.getvalue().removeprefix(HOME_AND_CLEAR).splitlines()
    assert len(lines) <= 13
    assert "..." in lines
    assert max(map(len, lines)) <= 20


def test_names_are_printed_without_escape_sequences() -> None:
    out = io.StringIO()
    Lines(out).show("10:00:00", overview((1,), "evil\x1b[2J"), ["evil\x1b[2J"])
    assert "\x1b" not in out.getvalue()

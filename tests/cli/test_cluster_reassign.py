"""`odradek cluster reassign` against a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import kafka
import pytest

from odradek.cli.__main__ import main
from odradek.testing import ClusterThread
from tests.cli.conftest import Odradek
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread(brokers=4) as cluster:
        yield cluster


@pytest.fixture
def reassign(cluster: ClusterThread, run_odradek: Odradek) -> Odradek:
    return lambda *arguments: run_odradek("cluster", "reassign", *arguments, "--bootstrap-server", cluster.bootstrap)


def test_replicas_move_to_other_brokers_and_all_are_in_sync(cluster: ClusterThread, reassign: Odradek) -> None:
    cluster.create_topic("moved", assignments={0: [1, 2], 1: [2, 1], 2: [1, 2]})
    status, out, err = reassign("moved", "--brokers", "3,4", "--wait")
    assert (status, err) == (0, "")
    *moves, end = out.splitlines()
    assert [move.split(" -> ")[0] for move in moves] == ["moved-0: 1,2", "moved-1: 2,1", "moved-2: 1,2"]
    targets = [move.split(" -> ")[1] for move in moves]
    assert set(targets) == {"3,4", "4,3"}
    assert targets[0] == targets[2] != targets[1], "the first replicas are spread"
    assert end == "all replicas are in sync"
    for partition in range(3):
        cluster.wait_for_isr("moved", partition, {3, 4})


def test_a_topic_gets_another_number_of_replicas(cluster: ClusterThread, reassign: Odradek) -> None:
    cluster.create_topic("grown", assignments={0: [1]})
    status, _, err = reassign("grown", "--brokers", "1,2,3", "--replication-factor", "3", "--wait")
    assert (status, err) == (0, "")
    cluster.wait_for_isr("grown", 0, {1, 2, 3})


def test_what_is_under_way_can_be_canceled(cluster: ClusterThread, reassign: Odradek) -> None:
    cluster.create_topic("stays", assignments={0: [1, 2]})
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    producer.send("stays", b"what the new replica does not get").get(timeout=PATIENCE_S)
    producer.close()
    cluster.freeze_replication(4)
    try:
        assert reassign("stays", "--brokers", "1,4")[0] == 0
        assert reassign("stays", "--cancel") == (0, "stays-0: canceled\n", "")
    finally:
        cluster.thaw(4)
    cluster.wait_until_stable()
    cluster.wait_for_isr("stays", 0, {1, 2})
    assert reassign("stays", "--cancel") == (1, "", "odradek: no reassignment of these topics is under way\n")


@pytest.fixture(scope="module")
def fixed(cluster: ClusterThread) -> str:
    cluster.create_topic("fixed", assignments={0: [1, 2]})
    return "fixed"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--brokers", "1,9"), "the cluster has no broker 9: it has 1,2,3,4"),
        (("--brokers", "1"), "fixed is to have 2 replicas: name as many brokers"),
        (("--cancel", "--wait"), "--cancel takes neither --replication-factor nor --wait"),
    ],
)
def test_what_cannot_be_done_is_refused(
    cluster: ClusterThread, reassign: Odradek, fixed: str, arguments: tuple[str, ...], reason: str
) -> None:
    assert reassign(fixed, *arguments) == (1, "", f"odradek: {reason}\n")
    assert cluster.isr(fixed, 0) == {1, 2}


def test_an_unknown_topic_is_named(reassign: Odradek) -> None:
    status, _, err = reassign("nothing", "--brokers", "1,2")
    assert status == 1
    assert "There is no topic 'nothing'" in err


def test_a_list_of_brokers_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cluster", "reassign", "orders", "--brokers", "one"])
    assert "'one' is not a list of broker ids: 1,2,3" in capsys.readouterr().err

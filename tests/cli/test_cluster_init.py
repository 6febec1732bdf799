"""`odradek cluster init` writes files with which a broker and a ZooKeeper start."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.settings.config import load_config
from odradek.cli.__main__ import main

NODES = "node1,node2,10.0.0.3"


def init(*arguments: str) -> int:
    return main(["cluster", "init", *arguments])


def test_each_machine_gets_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "cluster"
    assert init("--nodes", NODES, "--racks", "a,b,c", "--to", str(target)) == 0
    names = {"zoo.cfg", "myid", "zookeeper.service", "server.properties", "odradek.service"}
    paths = {target / host / name for host in NODES.split(",") for name in names}
    assert (
        set(map(Path, capsys.readouterr().out.splitlines())) == paths == {p for p in target.rglob("*") if p.is_file()}
    )
    assert [(target / host / "myid").read_text() for host in NODES.split(",")] == ["1\n", "2\n", "3\n"]
    zoo = [(target / host / "zoo.cfg").read_text().splitlines()[1:] for host in NODES.split(",")]
    assert zoo[0] == zoo[1] == zoo[2]
    assert zoo[0][-3:] == ["server.1=node1:2888:3888", "server.2=node2:2888:3888", "server.3=10.0.0.3:2888:3888"]


def test_a_broker_takes_the_settings_as_they_are(tmp_path: Path) -> None:
    assert init("--nodes", NODES, "--racks", "a,b,c", "--to", str(tmp_path)) == 0
    for number, host in enumerate(NODES.split(","), 1):
        config = load_config(str(tmp_path / host / "server.properties"))
        config.check_protection()
        assert (config.broker_id, config.broker_rack) == (number, "abc"[number - 1])
        assert config.zookeeper_connect == "node1:2181,node2:2181,10.0.0.3:2181/odradek"
        assert (config.default_replication_factor, config.offsets_topic_replication_factor) == (3, 3)
        assert config.log_config().min_insync_replicas == 2
        assert config.unknown_names() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", "a,b"), "name three machines, or five"),
        (("--nodes", "a,b,c,d"), "name three machines, or five"),
        (("--nodes", "a,b,a"), "named twice"),
        (("--nodes", "a,b,c d"), "'c d' is not a host name"),
        (("--nodes", "a,,c"), "'' is not a host name"),
        (("--nodes", "a,b,c", "--feature", "group.version=99"), "--feature: odradek.initial.features=group.version=99"),
        (("--nodes", "a,b,c", "--racks", "r"), "--racks has 1 names, but there are 3 nodes"),
    ],
)
def test_what_cannot_become_a_cluster_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert init(*arguments, "--to", str(tmp_path / "cluster")) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_the_levels_of_features_are_the_same_on_all_machines(tmp_path: Path) -> None:
    features = ("--feature", "group.version=0", "--feature", "transaction.version=0")
    assert init("--nodes", NODES, *features, "--to", str(tmp_path)) == 0
    for host in NODES.split(","):
        config = load_config(str(tmp_path / host / "server.properties"))
        assert config.odradek_initial_features == ["group.version=0", "transaction.version=0"]


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert init("--nodes", NODES, "--to", str(tmp_path)) == 1
    assert f"{tmp_path} is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]

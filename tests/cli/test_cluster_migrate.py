"""`odradek cluster migrate`: its options, and the settings of a server.properties."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.cli.__main__ import main
from odradek.storage.files import OsFiles
from tests.cli.migration.nodes import BROKER_ID, stopped_node
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.wire import Acl

CHROOT = "/odradek"
JAAS = """Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="secret";
};
"""
OWN, READABLE, OPEN = Acl(31, "sasl", "kafka"), Acl(1, "world", "anyone"), Acl(31, "world", "anyone")


@pytest.fixture
async def model() -> AsyncIterator[tuple[ZooKeeperModel, str]]:
    model = ZooKeeperModel()
    async with model.served() as address:
        yield model, f"{address}{CHROOT}"


@pytest.fixture
async def node(tmp_path: Path) -> Path:
    await stopped_node(OsFiles(), directory=str(tmp_path / "data"))
    return tmp_path / "data"


async def migrate(*arguments: object) -> int:
    return await asyncio.to_thread(main, ["cluster", "migrate", *map(str, arguments)])


def properties(node: Path, place: str, **settings: object) -> Path:
    path = node.parent / "server.properties"
    named = {"log.dirs": node, "zookeeper.connect": place, "broker.id": BROKER_ID}
    named |= {name.replace("_", "."): value for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in named.items()))
    return path


async def test_a_server_properties_says_everything(
    model: tuple[ZooKeeperModel, str], node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, place = model
    assert await migrate("--config", properties(node, place), "--dry-run") == 0
    assert tree.tree.get(CHROOT) is None
    assert await migrate("--config", properties(node, place)) == 0
    assert tree.tree.children(f"{CHROOT}/brokers/topics") == [f"topic-{number}" for number in range(4)]
    out = capsys.readouterr().out
    assert "dry run: nothing was written\n" in out
    assert f"\nstart broker {BROKER_ID} with zookeeper.connect={place} now" in out


async def test_the_entries_belong_to_the_user_of_the_login(model: tuple[ZooKeeperModel, str], node: Path) -> None:
    tree, place = model
    tree.users["kafka"], tree.requires_login = "secret", True
    (node.parent / "jaas.conf").write_text(JAAS)
    login = {"odradek_security_auth_login_config": node.parent / "jaas.conf", "zookeeper_set_acl": "true"}
    assert await migrate("--config", properties(node, place, **login)) == 0
    for path in ("/brokers/topics/topic-1", "/cluster/id", "/config/topics/topic-1"):
        assert tree.acls[CHROOT + path] == [OWN, READABLE]
    assert tree.acls[f"{CHROOT}/config/users"] == [OWN]
    assert tree.acls[f"{CHROOT}/consumers"] == [OPEN]


async def test_a_wrong_login_is_named(
    model: tuple[ZooKeeperModel, str], node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, place = model
    tree.users["kafka"] = "another"
    (node.parent / "jaas.conf").write_text(JAAS)
    login = {"odradek_security_auth_login_config": node.parent / "jaas.conf"}
    path = properties(node, place, **login, zookeeper_connection_timeout_ms=500)
    assert await migrate("--config", path) == 1
    assert "the login of kafka failed" in capsys.readouterr().err
    assert not (node / "metadata.migration").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the node's data: --config server.properties, or --data-dir"),
        (("--data-dir", "."), "name ZooKeeper: zookeeper.connect in the file of --config, or --zookeeper-connect"),
        (("--data-dir", "no/where", "--zookeeper-connect", "z:1"), "no/where has no metadata.journal"),
        (("--data-dir", ".", "--zookeeper-connect", "z:x"), "z:x has no valid port"),
        (("--config", "no-file"), "cannot read no-file"),
    ],
)
async def test_what_is_missing_is_named(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await migrate(*arguments) == 1
    assert message in capsys.readouterr().err


async def test_a_broker_id_that_is_not_the_nodes_is_refused(
    model: tuple[ZooKeeperModel, str], node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With it, the broker would have none of its replicas."""
    tree, place = model
    assert await migrate("--config", properties(node, place, broker_id=1)) == 1
    error = f"odradek: {node} belongs to broker {BROKER_ID}, but this one is 1; it is left alone\n"
    assert capsys.readouterr().err == error
    assert tree.tree.get(CHROOT) is None


async def test_a_broker_id_of_the_bundled_settings_is_not_asked(model: tuple[ZooKeeperModel, str], node: Path) -> None:
    assert await migrate("--data-dir", node, "--zookeeper-connect", model[1]) == 0

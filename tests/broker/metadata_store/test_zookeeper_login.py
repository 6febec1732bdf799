"""The login on each connection, and the ACLs of new entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata_store.interface import SessionState, StoreUnavailable
from odradek.broker.metadata_store.start_up import make_persistent_entries
from odradek.broker.metadata_store.zookeeper.acls import kafkas_acls
from odradek.broker.metadata_store.zookeeper.session_security import SessionSecurity
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.security.digest_md5 import Credentials
from tests.patience import until
from tests.zookeeper import wire
from tests.zookeeper.model import ServedConnection, ZooKeeperModel
from tests.zookeeper.stores import acls_of, store_at

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
KAFKA = SessionSecurity(Credentials("kafka", "secret"), kafkas_acls)
OWN, READABLE, OPEN = (31, "sasl", "kafka"), (1, "world", "anyone"), (31, "world", "anyone")


class Room:
    def __init__(self, model: ZooKeeperModel, address: str) -> None:
        self.model = model
        self.address = address
        self.states: list[SessionState] = []

    def store(self, security: SessionSecurity = KAFKA, *, connection_timeout_ms: int = 20_000) -> ZooKeeperStore:
        store = store_at(
            self.address,
            session_timeout_ms=5_000,
            connection_timeout_ms=connection_timeout_ms,
            security=security,
        )
        store.add_session_listener(self.states.append)
        return store


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    model = ZooKeeperModel()
    model.users, model.requires_login = {"kafka": "secret"}, True
    async with model.served() as address:
        yield Room(model, address)


async def test_the_login_comes_first_on_each_connection(room: Room) -> None:
    """The server answers nothing before it."""
    store = room.store()
    await store.open()
    assert await store.create("/a") == "/a"
    for connections in (2, 3):
        await store.get("/a", lambda _: None)
        room.model.drop_connections()
        await until(lambda connections=connections: room.states.count(CONNECTED) == connections)
        assert (await store.get("/a")).version == 0
    assert store.session_epoch == 1
    metrics = store.session_metrics
    assert (metrics.logins, metrics.connects, metrics.disconnects, metrics.failed_logins) == (3, 3, 2, 0)
    await store.close()
    assert metrics.state == "CLOSED"


async def test_a_wrong_password_during_a_reconnect_is_tried_until_it_is_right(room: Room) -> None:
    store = room.store()
    await store.open()
    await store.create("/live", ephemeral=True)
    session = store.session_id
    room.model.users["kafka"] = "another"
    with capture_logs() as lines:
        room.model.drop_connections()
        await until(lambda: room.model.failed_logins >= 6)
    assert store.session_metrics.state == "AUTH_FAILED"
    assert room.states == [CONNECTED, SUSPENDED]
    errors = [line for line in lines if line["log_level"] == "error"]
    assert {(line["event"], line["server"]) for line in errors} == {("no connection to ZooKeeper", room.address)}
    assert "the login of kafka failed" in errors[0]["reason"]
    assert "secret" not in str(lines)
    room.model.users["kafka"] = "secret"
    await until(lambda: room.states[-1] is CONNECTED)
    assert (store.session_id, store.session_epoch) == (session, 1)
    assert (await store.get("/live")).owner == session
    assert store.session_metrics.state == "CONNECTED"
    assert store.session_metrics.failed_logins == room.model.failed_logins
    await store.close()


async def test_a_wrong_password_at_the_start_ends_it_in_time(room: Room) -> None:
    store = room.store(SessionSecurity(Credentials("kafka", "guess")), connection_timeout_ms=300)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    reason = f"{room.address}: the login of kafka failed: ZooKeeper does not accept the login (AuthFailed)"
    assert str(caught.value) == f"no connection to ZooKeeper at {room.address} in 300 ms; {reason}"
    assert room.model.failed_logins >= 2


async def test_a_password_that_becomes_right_lets_the_start_go_on(room: Room) -> None:
    room.model.users["kafka"] = "another"
    store = room.store()
    opening = asyncio.ensure_future(store.open())
    await until(lambda: room.model.failed_logins >= 2)
    room.model.users["kafka"] = "secret"
    await opening
    assert store.session_epoch == 1
    await store.close()


async def test_a_server_without_logins_is_not_trusted(room: Room) -> None:
    room.model.users.clear()
    store = room.store(connection_timeout_ms=300)
    with pytest.raises(StoreUnavailable, match="the login of kafka failed: the server has no SASL login"):
        await store.open()


async def test_a_server_that_does_not_know_the_password_is_not_trusted(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ServedConnection.send
    monkeypatch.setattr(
        ServedConnection,
        "send",
        lambda self, data: send(self, data[:-2] + b"??" if b"rspauth" in data else data),
    )
    store = room.store(connection_timeout_ms=300)
    with pytest.raises(StoreUnavailable, match="the server did not prove that it knows the password"):
        await store.open()


async def test_a_login_is_said_to_be_required(room: Room) -> None:
    store = room.store(SessionSecurity(), connection_timeout_ms=300)
    with pytest.raises(StoreUnavailable, match=f"{room.address}: the server requires a SASL login"):
        await store.open()


@pytest.mark.parametrize("damage", ["another xid", "cut"])
async def test_a_damaged_login_is_given_up_and_tried_again(
    room: Room, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ServedConnection.send
    left = [3]

    def damaged(self: ServedConnection, data: bytes) -> None:
        if b"rspauth" in data and left[0]:
            left[0] -= 1
            data = data[:4] + b"\0\0\0\x09" + data[8:] if damage == "another xid" else wire.frame(data[4:22])
        send(self, data)

    monkeypatch.setattr(ServedConnection, "send", damaged)
    store = room.store()
    await store.open()
    assert left == [0]
    assert (store.session_metrics.logins, store.session_metrics.failed_logins) == (1, 0)
    await store.close()


# ACLs


async def test_entries_have_kafkas_acls(room: Room) -> None:
    store = room.store()
    await store.open()
    await make_persistent_entries(store)
    await store.create("/config/users/alice", b"{}")
    await store.create("/config/topics/t", b"{}")
    await store.create("/controller", ephemeral=True)
    number = await store.create("/config/changes/config_change_", sequential=True)
    for path in ("/brokers/ids", "/config", "/config/topics/t", "/controller", number, "/admin/delete_topics"):
        assert await acls_of(store, path) == [OWN, READABLE], path
    for path in ("/config/users", "/config/users/alice", "/config/brokers"):
        assert await acls_of(store, path) == [OWN], path
    assert await acls_of(store, "/consumers") == [OPEN]
    await store.close()


async def test_the_chroot_has_kafkas_acls_and_paths_are_judged_below_it(room: Room) -> None:
    room.address += "/clusters/one"
    store = room.store()
    await store.open()
    await store.create("/config")
    await store.create("/config/users")
    assert room.model.acls["/clusters"] == room.model.acls["/clusters/one"] == [OWN, READABLE]
    assert room.model.acls["/clusters/one/config/users"] == [OWN]
    await store.close()


async def test_without_the_setting_entries_are_open(room: Room) -> None:
    store = room.store(SessionSecurity(Credentials("kafka", "secret")))
    await store.open()
    await store.create("/config")
    assert await acls_of(store, "/config") == [OPEN]
    await store.close()


async def test_acls_without_a_login_are_refused_by_the_server(room: Room) -> None:
    room.model.requires_login = False
    store = room.store(SessionSecurity(None, kafkas_acls))
    await store.open()
    with pytest.raises(StoreUnavailable, match=r"/a: ZooKeeper does not accept its ACL.*InvalidACL"):
        await store.create("/a")
    await store.close()

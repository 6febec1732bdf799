"""A session with ZooKeeper when its connections break, its servers vanish, and its session ends."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from odradek.broker.metadata_store.interface import (
    LONGEST_CHANGE,
    Change,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NoEntry,
    Operation,
    SessionState,
    Set,
    StoreUnavailable,
    TooLarge,
    WatchEvent,
    size_of,
)
from odradek.broker.metadata_store.start_up import make_persistent_entries, next_broker_id
from odradek.broker.metadata_store.zookeeper import codec, connector
from odradek.broker.metadata_store.zookeeper.acls import AclsOf, kafkas_acls, open_to_all
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.timer import ManualClock
from tests.patience import until
from tests.zookeeper.model import ServedConnection, ZooKeeperModel
from tests.zookeeper.stores import store_at

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


class Room:
    """A model, its address, and a store that is open."""

    def __init__(self, model: ZooKeeperModel, address: str) -> None:
        self.model = model
        self.address = address
        self.states: list[SessionState] = []
        self.seen: list[WatchEvent] = []
        self.store = store_at(address, session_timeout_ms=2_000)
        self.store.add_session_listener(self.states.append)

    async def drop(self) -> None:
        """Breaks the connection of the store, and waits until it is connected again."""
        count = self.states.count(CONNECTED)
        self.model.drop_connections(self.store.session_id)
        await until(lambda: self.states.count(CONNECTED) > count)

    def other(self) -> ZooKeeperStore:
        return store_at(self.address)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    model = ZooKeeperModel()
    async with model.served() as address:
        room = Room(model, address)
        await room.store.open()
        yield room
        model.refuses = False
        await room.store.close()


async def test_a_broken_connection_continues_the_session(room: Room) -> None:
    await room.store.create("/live", ephemeral=True)
    session = room.store.session_id
    await room.drop()
    assert room.states == [CONNECTED, SUSPENDED, CONNECTED]
    assert (room.store.session_id, room.store.session_epoch) == (session, 1)
    assert (await room.store.get("/live")).owner == session


async def test_calls_without_an_answer_fail_when_the_connection_breaks(room: Room) -> None:
    calls = [asyncio.ensure_future(room.store.create(f"/{number}")) for number in range(30)]
    await asyncio.sleep(0)
    room.model.drop_connections()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 30


async def test_calls_during_an_outage_fail_at_once(room: Room) -> None:
    room.model.refuses = True
    room.model.drop_connections()
    await until(lambda: SUSPENDED in room.states)
    with pytest.raises(ConnectionLost):
        await room.store.get("/")
    with pytest.raises(ConnectionLost):
        await room.store.create("/a")
    room.model.refuses = False
    await room.store.connected()
    assert await room.store.create("/a") == "/a"


@pytest.mark.parametrize("change", [Set("/a", b"2"), Delete("/a")])
async def test_a_change_that_was_missed_calls_the_watch_after_the_reconnection(
    room: Room, change: Set | Delete
) -> None:
    other = room.other()
    await other.open()
    await room.store.multi([Create("/a"), Create("/p")])
    await room.store.get("/a", room.seen.append)
    await room.store.exists("/missing", room.seen.append)
    await room.store.children("/p", room.seen.append)
    room.model.refuses = True
    room.model.drop_connections(room.store.session_id)
    await other.multi([change, Create("/missing"), Create("/p/child")])
    room.model.refuses = False
    await until(lambda: len(room.seen) == 3)
    kind = Change.CHANGED if isinstance(change, Set) else Change.DELETED
    assert set(room.seen) == {
        WatchEvent(kind, "/a"),
        WatchEvent(Change.CREATED, "/missing"),
        WatchEvent(Change.CHILDREN, "/p"),
    }
    await other.close()


async def test_a_watch_without_a_missed_change_survives_a_reconnection(room: Room) -> None:
    await room.store.multi([Create("/a"), Create("/p")])
    await room.store.get("/a", room.seen.append)
    await room.store.exists("/missing", room.seen.append)
    await room.store.children("/p", room.seen.append)
    await room.drop()
    await room.drop()
    assert room.seen == []
    await room.store.multi([Set("/a", b"2"), Create("/missing"), Create("/p/child")])
    assert sorted(event.path for event in room.seen) == ["/a", "/missing", "/p"]


async def test_very_many_watches_are_set_again_in_several_requests(room: Room) -> None:
    paths = [f"/{number:04d}-{'x' * 200}" for number in range(2_000)]
    await room.store.pipeline([[Create(path)] for path in paths])
    for path in paths:
        await room.store.get(path, room.seen.append)
    await room.drop()
    await room.store.pipeline([[Set(path, b"1")] for path in paths])
    assert [event.path for event in room.seen] == paths


async def test_an_expired_session_is_replaced_by_a_new_one(room: Room) -> None:
    await room.store.create("/live", ephemeral=True)
    await room.store.get("/live", room.seen.append)
    session = room.store.session_id
    room.model.expire(session)
    await until(lambda: room.store.session_epoch == 2)
    assert room.states == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert room.store.session_id not in (0, session)
    with pytest.raises(NoEntry):
        await room.store.get("/live")
    await room.store.create("/live")
    await room.store.set("/live", b"1")
    assert all(event.change is not Change.CHANGED for event in room.seen), "its watches ended with the session"


async def test_a_store_that_lost_everything_ends_the_session_when_its_time_is_over(room: Room) -> None:
    """Until then its servers refuse a client that has seen more than they have."""
    for number in range(5):
        await room.store.create(f"/{number}")
    room.model.wipe()
    await until(lambda: room.store.session_epoch == 2)
    assert room.states == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert await room.store.children("/") == []


async def test_a_pinned_session_begins_anew_only_at_a_server_with_the_data(room: Room) -> None:
    """A server without it may know of many more transactions: the session goes on at the right one all the same."""
    await room.store.create("/pinned", b"right")
    await room.store.create("/live", ephemeral=True)
    room.store.pin("/pinned", lambda data: "" if data == b"right" else f"/pinned is {data!r}")
    session = room.store.session_id
    with capture_logs() as lines:
        right = room.model.wipe()
        await until(lambda: any("/pinned is missing" in str(line.get("reason")) for line in lines))
        other = store_at(room.address)
        await other.open()
        await other.create("/pinned", b"wrong")
        for number in range(100):
            await other.set("/pinned", b"wrong", number)
        await until(lambda: any("/pinned is b'wrong'" in str(line.get("reason")) for line in lines))
        assert room.states == [CONNECTED, SUSPENDED]
        await until(lambda: set(room.model.sessions) == {other.session_id})
        await other.close()
        room.model.restore(right)
        await room.store.connected()
        assert (room.store.session_id, room.store.session_epoch) == (session, 1)
        assert (await room.store.get("/live")).owner == session
        room.model.expire(session)
        await until(lambda: room.store.session_epoch == 2)
    assert room.states == [CONNECTED, SUSPENDED, CONNECTED, SUSPENDED, LOST, CONNECTED]


async def test_pings_keep_an_idle_session(room: Room) -> None:
    store = store_at(room.address, session_timeout_ms=300)
    await store.open()
    assert store.granted_timeout_ms == 300
    session = store.session_id
    await asyncio.sleep(1)
    assert session in room.model.sessions
    await store.get("/")
    assert store.session_epoch == 1
    await store.close()
    assert session not in room.model.sessions


async def test_the_granted_time_out_is_known(room: Room) -> None:
    model = ZooKeeperModel(tick_s=0.5)
    async with model.served() as address:
        store = store_at(address, session_timeout_ms=10)
        await store.open()
        assert store.granted_timeout_ms == 1_000
        await store.close()


async def test_a_silent_server_is_given_up_before_the_session_ends(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at(room.address, session_timeout_ms=600)
    await store.open()
    states: list[SessionState] = []
    store.add_session_listener(states.append)
    began = asyncio.get_running_loop().time()
    with monkeypatch.context() as patch:
        patch.setattr(ServedConnection, "send", lambda self, data: None)
        await until(lambda: states)
    assert states[0] is SUSPENDED
    assert asyncio.get_running_loop().time() - began < 0.6
    await store.close()


async def test_the_next_server_is_tried_when_one_is_gone(room: Room) -> None:
    other = ZooKeeperModel(source=random.Random(2))
    other.tree, other.sessions = room.model.tree, room.model.sessions
    async with other.served() as address:
        store = store_at(f"{room.address},{address}", session_timeout_ms=2_000)
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        await store.open()
        session = store.session_id
        for _ in range(3):
            gone, there = (room.model, other) if room.model.has(session) else (other, room.model)
            gone.refuses, there.refuses = True, False
            states.clear()
            gone.drop_connections()
            await until(lambda: CONNECTED in states)
            await store.get("/")
        assert store.session_id == session
        await store.close()


async def test_a_change_above_the_limit_is_refused_before_it_is_sent(room: Room) -> None:
    await room.store.create("/p")
    outcomes = await room.store.pipeline(
        [[Create("/p/a")], [Create(f"/p/{number}", bytes(600_000)) for number in range(2)], [Create("/p/b")]]
    )
    assert [type(outcome) for outcome in outcomes] == [list, TooLarge, list]
    assert await room.store.children("/p") == ["a", "b"]
    assert room.states == [CONNECTED]
    largest = LONGEST_CHANGE - size_of(Create("/p/largest"))
    assert await room.store.create("/p/largest", bytes(largest)) == "/p/largest"


@pytest.mark.parametrize("acls_of", [open_to_all, kafkas_acls])
@pytest.mark.parametrize("path", ["/", "/consumers", "/config/users", "/brokers/topics/t"])
def test_an_operation_takes_no_more_bytes_than_it_counts_as(acls_of: AclsOf, path: str) -> None:
    operations: list[Operation] = [Create(path, b"x" * 20), Create(path), Set(path, b"x"), Delete(path), Check(path)]
    for operation in operations:
        one, two = (codec.multi([operation] * count, codec.Chroot(""), acls_of) for count in (1, 2))
        assert isinstance(one, codec.Request)
        assert isinstance(two, codec.Request)
        assert len(two.body) - len(one.body) <= size_of(operation)


async def test_a_change_that_only_the_chroot_makes_too_large_is_refused(room: Room) -> None:
    """Not with a chroot that anybody has: its length would have to be some hundred bytes."""
    store = store_at(f"{room.address}/{'c' * 200}")
    await store.open()
    with pytest.raises(TooLarge, match="with the chroot"):
        await store.multi([Create(f"/{number}", bytes(20)) for number in range(9_000)])
    assert await store.children("/") == []
    await store.close()


async def test_a_long_pipeline_is_encoded_in_steps(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, in_turn = codec.multi, [0]

    def counted(operations: Sequence[Operation], *others: Any) -> codec.Request | TooLarge:
        in_turn[-1] += len(operations)
        return encode(operations, *others)

    monkeypatch.setattr(codec, "multi", counted)
    groups: list[list[Operation]] = [[Create(f"/{number}"), Set(f"/{number}", b"x")] for number in range(1_000)]
    sending = asyncio.ensure_future(room.store.pipeline(groups))
    while not sending.done():
        in_turn.append(0)
        await asyncio.sleep(0)
    assert all(isinstance(outcome, list) for outcome in sending.result())
    assert sum(in_turn) == 2_000
    assert max(in_turn) <= 200


async def test_what_follows_a_lost_group_of_a_pipeline_is_lost_too_although_the_store_is_connected_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would be applied before the groups that are sent again."""
    monkeypatch.setattr(connector, "FIRST_PAUSE_S", 0)
    model, encode, numbers = ZooKeeperModel(), codec.multi, itertools.count()

    def dropping(operations: Sequence[Operation], *others: Any) -> codec.Request | TooLarge:
        if next(numbers) == 500:
            model.drop_connections()
        return encode(operations, *others)

    async with model.served() as address:
        store = store_at(address)
        await store.open()
        monkeypatch.setattr(codec, "multi", dropping)
        outcomes = await store.pipeline([[Create(f"/{number:04d}")] for number in range(9_000)])
        await store.connected()
        are_known = [isinstance(outcome, list) for outcome in outcomes]
        assert are_known == sorted(are_known, reverse=True)
        assert {type(outcome) for outcome in outcomes} == {list, ConnectionLost}
        names = await store.children("/")
        assert names == [f"{number:04d}" for number in range(len(names))]
        assert sum(are_known) <= len(names) < 9_000
        await store.close()


async def test_no_more_requests_are_in_flight_than_allowed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[tuple[ServedConnection, bytes]] = []
    with monkeypatch.context() as patch:
        patch.setattr(ServedConnection, "send", lambda self, data: held.append((self, data)))
        calls = [asyncio.ensure_future(room.store.create(f"/{number}")) for number in range(25)]
        await until(lambda: len(held) == 10)
        await asyncio.sleep(0.05)
        assert len(held) == 10
    for connection, data in held:
        connection.send(data)
    assert await asyncio.gather(*calls) == [f"/{number}" for number in range(25)]


async def test_a_reply_that_cannot_be_read_ends_the_connection(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ServedConnection.send
    no_xid, too_long = lambda data: data[:4] + bytes(len(data) - 4), lambda data: data[:20] + b"\x7f" + data[21:]
    for damage in (no_xid, too_long):
        with monkeypatch.context() as patch:
            patch.setattr(ServedConnection, "send", lambda self, data, damage=damage: send(self, damage(data)))
            with pytest.raises(ConnectionLost):
                await room.store.get("/")
        await room.store.connected()
    assert await room.store.create("/a") == "/a"
    assert room.store.session_epoch == 1


async def test_a_frame_of_an_impossible_length_ends_the_connection(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ServedConnection.send
    with monkeypatch.context() as patch:
        patch.setattr(ServedConnection, "send", lambda self, data: send(self, b"\x7f" + data[1:]))
        with pytest.raises(ConnectionLost):
            await room.store.get("/")
    await room.store.connected()
    assert room.store.session_epoch == 1


async def test_all_entries_are_below_the_chroot_which_is_created(room: Room) -> None:
    store = store_at(f"{room.address}/clusters/one")
    await store.open()
    seen: list[WatchEvent] = []
    assert await store.children("/", seen.append) == []
    assert await store.create("/n_", b"x", sequential=True) == "/n_0000000000"
    assert seen == [WatchEvent(Change.CHILDREN, "/")]
    assert (await room.store.get("/clusters/one/n_0000000000")).data == b"x"
    with pytest.raises(NoEntry) as caught:
        await store.get("/missing")
    assert caught.value.path == "/missing"
    await store.close()
    await store.open()
    assert await store.children("/") == ["n_0000000000"]
    await store.close()


async def test_no_data_is_not_empty_data(room: Room) -> None:
    await room.store.multi([Create("/null"), Create("/empty", b"")])
    assert [(await room.store.get(path)).data for path in ("/null", "/empty")] == [None, b""]
    await room.store.multi([Set("/null", b""), Set("/empty", None)])
    assert [(await room.store.get(path)).data for path in ("/null", "/empty")] == [b"", None]


async def test_a_store_that_is_not_there_is_reported_in_time() -> None:
    store = store_at("127.0.0.1:1", connection_timeout_ms=200)
    began = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable, match=r"no connection to ZooKeeper at 127.0.0.1:1 in 200 ms"):
        await store.open()
    assert asyncio.get_running_loop().time() - began < 5
    await store.close()


async def test_a_session_closes_quickly_while_the_store_is_gone(room: Room) -> None:
    room.model.refuses = True
    room.model.drop_connections()
    await until(lambda: SUSPENDED in room.states)
    waiting = asyncio.ensure_future(room.store.connected())
    began = asyncio.get_running_loop().time()
    await room.store.close()
    assert asyncio.get_running_loop().time() - began < 1
    with pytest.raises(StoreUnavailable):
        await waiting
    assert room.states == [CONNECTED, SUSPENDED, LOST]


async def test_a_server_that_does_not_answer_does_not_hold_up_the_end(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ServedConnection, "send", lambda self, data: None)
        began = asyncio.get_running_loop().time()
        await room.store.close()
        assert asyncio.get_running_loop().time() - began < 3


async def test_brokers_without_an_id_are_numbered(room: Room) -> None:
    """Above reserved.broker.max.id, by the version of an entry; one after the other for the whole cluster."""
    other = room.other()
    await other.open()
    await make_persistent_entries(room.store)
    assert [await next_broker_id(store, 1000) for store in (room.store, other, room.store)] == [1001, 1002, 1003]
    await other.close()


async def test_a_long_call_lets_others_run_and_is_sent_before_later_ones(room: Room) -> None:
    await room.store.create("/p")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    many = asyncio.ensure_future(room.store.pipeline([[Create(f"/p/{number}")] for number in range(3_000)]))
    await asyncio.sleep(0)
    last, names = await asyncio.gather(room.store.create("/last"), room.store.children("/p"))
    assert len(names) == 3_000
    assert turns > 10
    counting.cancel()
    created = await room.store.entries(["/p/2999", last])
    assert created[0] is not None
    assert created[1] is not None
    assert created[0].created < created[1].created
    assert all(isinstance(outcome, list) for outcome in await many)


async def test_an_outage_is_logged_when_it_begins_and_ends(room: Room) -> None:
    with capture_logs() as logs:
        room.model.refuses = True
        room.model.drop_connections()
        await until(lambda: [line for line in logs if line["event"] == "no connection to ZooKeeper"])
        await asyncio.sleep(0.5)
        room.model.refuses = False
        await room.store.connected()
    assert [line["event"] for line in logs] == [
        "connection to ZooKeeper lost",
        "no connection to ZooKeeper",
        "connected to ZooKeeper",
    ]


@pytest.mark.parametrize("outage", ["refused", "wiped"])
async def test_an_outage_that_lasts_is_logged_every_minute_with_since_when(room: Room, outage: str) -> None:
    clock = ManualClock(now_ms=1000)
    async with asyncio.timeout(60):
        store = store_at(room.address, session_timeout_ms=2_000, clock=clock)
        await store.open()
        await store.create("/here")
        store.pin("/here", lambda _data: "")
        with capture_logs() as logs:

            def failures() -> list[EventDict]:
                return [line for line in logs if line["event"] == "no connection to ZooKeeper"]

            if outage == "wiped":
                room.model.wipe()
            else:
                room.model.refuses = True
                room.model.drop_connections()
            level = "error" if outage == "wiped" else "warning"
            await until(lambda: any(line["log_level"] == level for line in failures()))
            for minutes in (1, 2):
                clock.advance(60_000)
                await until(lambda minutes=minutes: [line for line in failures() if line.get("for_s") == 60 * minutes])
        reminders = [line for line in failures() if "since" in line]
        assert len(reminders) == 2
        assert {line["log_level"] for line in reminders} == {level}
        room.model.refuses = False
        await store.close()


async def test_after_a_reconnection_nothing_is_read_that_is_older_than_a_change_before_it(room: Room) -> None:
    """A broker may know of a change from the controller, and then read it from a server that lags."""
    other = room.other()
    await other.open()
    await room.store.create("/p")
    room.model.lag()
    await other.create("/p/new", b"1")
    assert await room.store.entries(["/p/new"]) == [None]
    await room.drop()
    (entry,) = await room.store.entries(["/p/new"])
    assert entry is not None
    assert entry.data == b"1"
    await other.close()

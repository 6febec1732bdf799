from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar, copy_context

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    Change,
    ConnectionLost,
    Create,
    Delete,
    EntryExists,
    MetadataStore,
    NoEntry,
    SessionState,
    Set,
    StoreUnavailable,
    WatchEvent,
)
from odradek.broker.metadata_store.journal import JOURNAL_NAME, SNAPSHOT_NAME, read_journal, read_snapshot
from odradek.broker.metadata_store.shared.shared_store import SharedStore, no_delay
from odradek.broker.metadata_store.tree import MetadataTree
from tests.simulation.loop import in_virtual_time, run_in_virtual_time

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST
TIMEOUT_S = 6.0


def shared_store(delay: Callable[[str], float] = no_delay) -> SharedStore:
    return SharedStore(session_timeout_ms=int(TIMEOUT_S * 1000), delay=delay)


async def opened(shared: SharedStore, name: str) -> tuple[MetadataStore, list[SessionState]]:
    """Returns an open session and the states that it will report."""
    store, states = shared.session(name), list[SessionState]()
    await store.open()
    store.add_session_listener(states.append)
    return store, states


async def rest() -> None:
    """Lets everything happen that happens without a delay."""
    for _ in range(20):
        await asyncio.sleep(0)


@in_virtual_time
async def test_sessions_see_each_others_changes_and_keep_their_own_ids() -> None:
    shared = shared_store()
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/live", ephemeral=True)
    assert (await two.get("/live")).owner == one.session_id != two.session_id
    seen: list[WatchEvent] = []
    await two.get("/live", seen.append)
    await one.close()
    await rest()
    assert seen == [WatchEvent(Change.DELETED, "/live")]
    assert await two.exists("/live") is None


@in_virtual_time
async def test_events_arrive_in_order_and_before_the_answers_of_later_calls() -> None:
    source = random.Random(5)
    shared = shared_store(lambda _: source.uniform(0, 0.1))
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/a", b"0")
    seen: list[bytes | None] = []
    changed = asyncio.Event()
    latest = -1

    async def follow() -> None:
        nonlocal latest
        while latest < 30:
            changed.clear()
            entry = await two.get("/a", lambda _: changed.set())
            assert int(entry.data or b"") >= latest
            latest = int(entry.data or b"")
            seen.append(entry.data)
            if latest < 30:
                await changed.wait()

    following = asyncio.ensure_future(follow())
    for number in range(1, 31):
        await one.set("/a", b"%d" % number)
    await following
    assert len(seen) > 5


@in_virtual_time
async def test_a_session_that_is_healed_in_time_keeps_its_entries_and_watches() -> None:
    shared = shared_store()
    (one, states), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    order: list[object] = []
    one.add_session_listener(order.append)
    await one.create("/live", ephemeral=True)
    owner = one.session_id
    await one.exists("/a", order.append)
    await one.exists("/b", order.append)
    await one.exists("/c", order.append)
    shared.cut("1")
    with pytest.raises(ConnectionLost):
        await one.get("/live")
    assert states == [SUSPENDED]
    await two.pipeline([[Create("/b")], [Create("/a")]])
    await asyncio.sleep(TIMEOUT_S - 0.1)
    with pytest.raises(ConnectionLost):
        await one.create("/d")
    shared.heal("1")
    await one.connected()
    await one.create("/c")
    assert states == [SUSPENDED, CONNECTED]
    created = [WatchEvent(Change.CREATED, path) for path in ("/b", "/a", "/c")]
    assert order == [SUSPENDED, CONNECTED, *created]
    assert (one.session_epoch, (await one.get("/live")).owner, one.session_id) == (1, owner, owner)
    await asyncio.sleep(10 * TIMEOUT_S)
    assert await two.children("/") == ["a", "b", "c", "live"]


@in_virtual_time
async def test_a_session_that_is_cut_off_for_too_long_ends_and_another_begins() -> None:
    shared = shared_store()
    (one, states), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    seen: list[WatchEvent] = []
    await one.create("/live", ephemeral=True)
    await one.exists("/a", seen.append)
    owner = one.session_id
    ended = asyncio.get_running_loop().create_future()
    await two.get("/live", ended.set_result)
    cut_at = asyncio.get_running_loop().time()
    shared.cut("1")
    assert await ended == WatchEvent(Change.DELETED, "/live")
    assert asyncio.get_running_loop().time() - cut_at == pytest.approx(TIMEOUT_S)
    assert states == [SUSPENDED], "nobody can tell it"
    await two.create("/a")
    shared.heal("1")
    await one.connected()
    assert states == [SUSPENDED, LOST, CONNECTED]
    assert one.session_epoch == 2
    assert one.session_id not in (0, owner)
    await one.create("/live", ephemeral=True)
    assert (await two.get("/live")).owner == one.session_id
    assert seen == [], "watches end with their session"


@in_virtual_time
async def test_the_time_of_a_session_begins_anew_with_each_cut() -> None:
    shared = shared_store()
    one, states = await opened(shared, "1")
    for _ in range(3):
        shared.cut("1")
        await asyncio.sleep(TIMEOUT_S - 1)
        shared.heal("1")
        await one.connected()
    assert (one.session_epoch, states) == (1, [SUSPENDED, CONNECTED] * 3)


@in_virtual_time
async def test_a_process_that_is_stopped_for_a_while_keeps_its_connection_and_its_session() -> None:
    shared = shared_store()
    (one, states), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/live", ephemeral=True)
    creating = asyncio.ensure_future(one.create("/on its way"))
    await asyncio.sleep(0)
    for _ in range(3):
        shared.silence("1")
        await asyncio.sleep(TIMEOUT_S - 0.1)
        shared.end_silence("1")
    await asyncio.sleep(TIMEOUT_S)
    assert await creating == "/on its way"
    assert states == []
    assert (await two.get("/live")).owner == one.session_id


@in_virtual_time
async def test_a_process_that_is_stopped_for_too_long_loses_its_session() -> None:
    shared = shared_store()
    (one, states), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/live", ephemeral=True)
    first = one.session_id
    shared.silence("1")
    await asyncio.sleep(TIMEOUT_S - 0.1)
    assert shared.entry("/live") == await two.get("/live")
    await asyncio.sleep(0.2)
    assert shared.entry("/live") is None
    shared.end_silence("1")
    await one.connected()
    assert states == [SUSPENDED, LOST, CONNECTED]
    assert one.session_id != first
    await asyncio.sleep(2 * TIMEOUT_S)
    assert states == [SUSPENDED, LOST, CONNECTED]


@in_virtual_time
async def test_the_time_of_a_process_that_is_cut_off_and_stopped_runs_once() -> None:
    shared = shared_store()
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/live", ephemeral=True)
    shared.cut("1")
    await asyncio.sleep(TIMEOUT_S / 2)
    shared.silence("1")
    await asyncio.sleep(TIMEOUT_S / 4)
    shared.end_silence("1")
    assert await two.exists("/live") is not None
    await asyncio.sleep(TIMEOUT_S / 2)
    assert await two.exists("/live") is None


@in_virtual_time
async def test_a_session_can_end_while_it_is_connected() -> None:
    shared = shared_store()
    (one, states), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/live", ephemeral=True)
    shared.expire("1")
    assert await two.exists("/live") is None
    await rest()
    assert states == [SUSPENDED, LOST, CONNECTED]
    assert one.session_epoch == 2
    await one.create("/live", ephemeral=True)
    await asyncio.sleep(2 * TIMEOUT_S)
    assert (await two.get("/live")).owner == one.session_id


@in_virtual_time
async def test_between_two_sessions_there_is_no_session_id_and_calls_fail() -> None:
    shared = shared_store(lambda _: 1.0)
    one, states = await opened(shared, "1")
    lost = asyncio.Event()
    one.add_session_listener(lambda state: lost.set() if state is LOST else None)
    shared.expire("1")
    await lost.wait()
    assert states == [SUSPENDED, LOST]
    assert (one.session_id, one.session_epoch) == (0, 1)
    with pytest.raises(ConnectionLost):
        await one.create("/a")
    await one.connected()
    assert (states[2:], one.session_epoch) == ([CONNECTED], 2)
    assert await one.children("/") == []


def test_a_cut_loses_the_answers_of_what_has_arrived_and_with_a_random_source_more_may_arrive() -> None:
    async def applied(cut_at: float, seed: int | None) -> int:
        shared = shared_store(lambda _: 1.0)
        one, _ = await opened(shared, "1")
        two, _ = await opened(shared, "2")
        loop = asyncio.get_running_loop()
        loop.call_later(cut_at, lambda: shared.cut("1", lost_answers=None if seed is None else random.Random(seed)))
        outcomes = await one.pipeline([[Create(f"/{number}")] for number in range(4)])
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 4
        names = await two.children("/")
        assert names == [str(number) for number in range(len(names))], "calls arrive in order"
        return len(names)

    assert run_in_virtual_time(applied(0.5, None)) == 0
    assert run_in_virtual_time(applied(1.5, None)) == 4
    assert {run_in_virtual_time(applied(0.5, seed)) for seed in range(50)} == {0, 1, 2, 3, 4}
    assert [run_in_virtual_time(applied(0.5, 7)) for _ in range(3)] == [run_in_virtual_time(applied(0.5, 7))] * 3


@in_virtual_time
async def test_changes_made_during_a_cut_fail_but_with_a_random_source_half_of_them_are_carried_out() -> None:
    shared = shared_store()
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    for lost_answers in (None, random.Random(1)):
        shared.cut("1", lost_answers=lost_answers)
        for number in range(100):
            with pytest.raises(ConnectionLost):
                await one.create(f"/{number}", ephemeral=True)
        assert await two.children("/") == [] or lost_answers is not None
    carried_out = await two.children("/")
    assert 30 < len(carried_out) < 70
    assert (await two.get(f"/{carried_out[0]}")).owner == one.session_id
    await asyncio.sleep(TIMEOUT_S + 1)
    assert await two.children("/") == []
    for number in range(100):
        with pytest.raises(ConnectionLost):
            await one.create(f"/{number}")
    assert await two.children("/") == [], "a session that has ended changes nothing"


@in_virtual_time
async def test_a_read_whose_answer_is_lost_sets_no_watch() -> None:
    shared = shared_store(lambda _: 1.0)
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    seen: list[WatchEvent] = []
    asyncio.get_running_loop().call_later(1.5, shared.cut, "1")
    with pytest.raises(ConnectionLost):
        await one.exists("/a", seen.append)
    shared.heal("1")
    await one.connected()
    await two.create("/a")
    await asyncio.sleep(5)
    assert seen == []


@in_virtual_time
async def test_events_on_their_way_survive_a_cut() -> None:
    shared = shared_store(lambda name: 1.0 if name == "1" else 0.0)
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    seen: list[WatchEvent] = []
    for path in ("/a", "/b", "/c"):
        await one.exists(path, seen.append)
    await two.pipeline([[Create("/c")], [Create("/b")]])
    shared.cut("1")
    await two.create("/a")
    shared.heal("1")
    await one.connected()
    await asyncio.sleep(1)
    assert [event.path for event in seen] == ["/c", "/b", "/a"]


@in_virtual_time
async def test_the_session_of_a_process_that_was_killed_ends_at_its_time_out() -> None:
    shared = shared_store()
    killed, states = await opened(shared, "1")
    await killed.create("/live", ephemeral=True)
    again, _ = await opened(shared, "1")
    assert (await again.get("/live")).owner == killed.session_id
    await asyncio.sleep(TIMEOUT_S - 0.1)
    assert await again.exists("/live") is not None
    await asyncio.sleep(0.2)
    assert await again.exists("/live") is None
    shared.heal("1")
    await rest()
    assert CONNECTED not in states, "the killed process does not come back"
    shared.expire("1")
    await rest()
    assert again.session_epoch == 2


@in_virtual_time
async def test_a_session_opens_when_the_cut_ends_or_not_at_all() -> None:
    shared = shared_store()
    shared.session("1")
    shared.cut("1")
    store = shared.session("1")
    with pytest.raises(StoreUnavailable, match="no connection to the metadata store in 6000 ms"):
        await store.open()
    with pytest.raises(StoreUnavailable):
        await store.get("/")
    asyncio.get_running_loop().call_later(3, shared.heal, "1")
    await store.open()
    assert store.session_epoch == 1
    assert (await store.get("/")).data is None


@in_virtual_time
async def test_opening_a_session_may_take_longer_than_a_session_lives() -> None:
    shared = SharedStore(session_timeout_ms=1000, connection_timeout_ms=5000, delay=lambda _: 2.0)
    store = shared.session("1")
    await store.open()
    assert store.session_id > 0


@in_virtual_time
async def test_a_session_that_is_closed_while_it_is_cut_off_ends_at_its_time_out() -> None:
    shared = shared_store()
    (one, states), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/live", ephemeral=True)
    shared.cut("1")
    waiting = [asyncio.ensure_future(one.connected()) for _ in range(2)]
    await rest()
    await one.close()
    assert states == [SUSPENDED, LOST]
    for waiter in waiting:
        with pytest.raises(StoreUnavailable):
            await waiter
    shared.heal("1")
    await asyncio.sleep(TIMEOUT_S - 0.1)
    assert await two.exists("/live") is not None
    await asyncio.sleep(0.2)
    assert await two.exists("/live") is None
    assert states == [SUSPENDED, LOST]


@in_virtual_time
async def test_cuts_and_heals_in_quick_succession_lose_nothing_but_answers() -> None:
    source = random.Random(4)
    shared = shared_store(lambda _: source.uniform(0, 0.01))
    one, states = await opened(shared, "1")
    await one.create("/live", ephemeral=True)
    for _ in range(50):
        shared.cut("1")
        shared.heal("1")
        await asyncio.sleep(source.choice([0, 0, 0.005, 0.02]))
    await one.connected()
    assert (await one.get("/live")).owner == one.session_id
    assert one.session_epoch == 1
    assert LOST not in states


@in_virtual_time
async def test_a_failing_watch_or_listener_does_not_stop_the_others() -> None:
    shared = shared_store()
    one, states = await opened(shared, "1")
    seen: list[WatchEvent] = []

    def fail(_: object) -> None:
        raise ValueError("broken")

    one.add_session_listener(fail)
    one.add_session_listener(states.append)
    await one.exists("/a", fail)
    await one.exists("/a", seen.append)
    await one.create("/a")
    assert len(seen) == 1
    shared.expire("1")
    await rest()
    assert states == [SUSPENDED, SUSPENDED, LOST, LOST, CONNECTED, CONNECTED]


NODE: ContextVar[str] = ContextVar("NODE", default="the store")


@in_virtual_time
async def test_whatever_a_session_calls_runs_in_the_context_that_opened_it() -> None:
    shared = shared_store(lambda _: 0.1)
    seen: list[tuple[str, object]] = []

    def note(what: object) -> None:
        seen.append((NODE.get(), what))

    async def run(name: str) -> None:
        NODE.set(name)
        store = shared.session(name)
        store.add_session_listener(note)
        await store.open()
        await store.exists("/a", note)

    for name in ("1", "2"):
        await asyncio.get_running_loop().create_task(run(name), context=copy_context())
    two, _ = await opened(shared, "3")
    seen.clear()
    await two.create("/a")
    shared.expire("2")
    await asyncio.sleep(5)
    created = WatchEvent(Change.CREATED, "/a")
    assert seen == [("1", created), ("2", created), ("2", SUSPENDED), ("2", LOST), ("2", CONNECTED)]


@in_virtual_time
async def test_a_long_change_lets_others_run_and_is_still_atomic() -> None:
    shared = shared_store()
    (one, _), (two, _), (three, _) = [await opened(shared, name) for name in "123"]
    await two.create("/live", ephemeral=True)
    turns = 0
    operations = [Create(f"/{number}") for number in range(5000)]
    change = asyncio.ensure_future(one.multi([*operations, Delete("/live")]))
    while not change.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 30:
            shared.expire("2")
            shared.cut("1")
    with pytest.raises(ConnectionLost):
        await change
    assert turns > 5000 / 300
    assert len(await three.children("/")) in (0, 1, 5000)
    await rest()
    assert len(await three.children("/")) == 5000


@in_virtual_time
async def test_operations_are_taken_when_the_call_is_made() -> None:
    shared = shared_store()
    one, _ = await opened(shared, "1")
    operations: list[Create | Set] = [Create("/a", b"1")]
    call = asyncio.ensure_future(one.multi(operations))
    await asyncio.sleep(0)
    operations.append(Set("/a", b"2"))
    assert await call == ["/a"]
    with pytest.raises(NoEntry):
        await one.get("/b")


@in_virtual_time
async def test_nobody_is_elected_before_the_entries_that_come_before_elections_exist() -> None:
    shared = SharedStore(session_timeout_ms=6000, before_elections=["/ids/1", "/ids/2"])
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    await one.create("/ids")
    await one.create("/ids/1", ephemeral=True)
    standing = asyncio.ensure_future(one.create(znodes.CONTROLLER, b"1", ephemeral=True))
    await asyncio.sleep(TIMEOUT_S)
    assert not standing.done()
    assert await one.exists(znodes.CONTROLLER) is None  # its other calls go on
    await two.create("/ids/2", ephemeral=True)
    await standing
    with pytest.raises(EntryExists):
        await two.create(znodes.CONTROLLER, b"2", ephemeral=True)
    await one.delete("/ids/1")
    await one.delete(znodes.CONTROLLER)
    await two.create(znodes.CONTROLLER, b"2", ephemeral=True)  # only the first time


@in_virtual_time
async def test_a_candidate_that_is_gone_when_elections_begin_is_not_elected() -> None:
    shared = SharedStore(session_timeout_ms=6000, before_elections=["/ids"])
    (one, _), (two, _) = await opened(shared, "1"), await opened(shared, "2")
    standing = asyncio.ensure_future(one.create(znodes.CONTROLLER, b"1", ephemeral=True))
    await rest()
    shared.cut("1")
    with pytest.raises(ConnectionLost):
        await standing
    await asyncio.sleep(TIMEOUT_S + 1)
    await two.create("/ids")
    assert await two.exists(znodes.CONTROLLER) is None


async def test_a_store_begins_with_the_tree_of_another_and_without_its_sessions() -> None:
    shared = shared_store()
    one, _ = await opened(shared, "1")
    await one.create("/kept", b"value")
    await one.create("/live", ephemeral=True)
    files = finished(shared.freeze().steps())
    tree = MetadataTree()
    read_snapshot(SNAPSHOT_NAME, files[SNAPSHOT_NAME], tree)
    read_journal(JOURNAL_NAME, files[JOURNAL_NAME], tree)
    two, _ = await opened(SharedStore(session_timeout_ms=6000, tree=tree), "2")
    assert (await two.get("/kept")).data == b"value"
    assert await two.exists("/live") is None
    assert (await two.get("/kept")).created == (await one.get("/kept")).created
    await one.close()
    await two.close()

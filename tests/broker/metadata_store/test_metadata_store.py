"""What every metadata store promises: the same tests for the embedded store, for sessions with a shared one in
memory, and for sessions with ZooKeeper, the model of the tests and Apache's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.interface import (
    ANY_VERSION,
    LONGEST_CHANGE,
    BadArguments,
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    Entry,
    EntryExists,
    HasChildren,
    MetadataStore,
    NoEntry,
    SessionState,
    Set,
    StoreUnavailable,
    TooLarge,
    WatchEvent,
    size_of,
)
from odradek.broker.metadata_store.read_back import multi_or_read_back
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from tests.broker.controller.harness import DIRECTORY, store_disk
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot, store_at


async def later(work: Callable[[], None]) -> None:
    """A disk that one waits for."""
    await asyncio.sleep(0)
    work()


def closed_store(kind: str) -> MetadataStore:
    if kind == "embedded":
        return EmbeddedMetadataStore(DIRECTORY, store_disk(), run_blocking=later)
    if kind == "shared":
        return SharedStore(session_timeout_ms=60_000).session("1")
    source = random.Random(3)
    return SharedStore(session_timeout_ms=60_000, delay=lambda _: source.uniform(0, 0.002)).session("1")


STORES = [
    "embedded",
    "shared",
    "shared with delays",
    "ZooKeeper model",
    pytest.param("ZooKeeper", marks=pytest.mark.programs),
]


@pytest.fixture(params=STORES)
async def unopened(request: pytest.FixtureRequest) -> AsyncIterator[MetadataStore]:
    if request.param == "ZooKeeper":
        yield store_at(request.getfixturevalue("zookeeper") + new_chroot())
    elif request.param == "ZooKeeper model":
        async with ZooKeeperModel().served() as address:
            yield store_at(address + new_chroot())
    else:
        yield closed_store(request.param)


@pytest.fixture
async def store(unopened: MetadataStore) -> AsyncIterator[MetadataStore]:
    await unopened.open()
    yield unopened
    await unopened.close()


async def test_an_entry_counts_its_changes_and_its_children(store: MetadataStore) -> None:
    assert await store.create("/a", b"1") == "/a"
    assert await store.set("/a", b"2") == 1
    await store.create("/a/c")
    await store.create("/a/b")
    entry = await store.get("/a")
    assert (entry.data, entry.version, entry.children_version, entry.ephemeral) == (b"2", 1, 2, False)
    assert await store.exists("/a") == entry
    assert await store.children("/a") == ["b", "c"]
    assert await store.exists("/missing") is None
    await store.delete("/a/b")
    assert await store.entries(["/a/b", "/a", "/missing"]) == [None, entry._replace(children_version=3), None]


async def test_a_compare_and_set_with_an_old_version_fails(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    await asyncio.gather(store.set("/a", b"2", 0), store.set("/b", b"3"), return_exceptions=True)
    with pytest.raises(BadVersion):
        await store.set("/a", b"3", 0)
    with pytest.raises(BadVersion):
        await store.delete("/a", 0)
    assert await store.set("/a", b"4", ANY_VERSION) == 2


async def test_an_impossible_change_is_refused(store: MetadataStore) -> None:
    await store.multi([Create("/a"), Create("/a/b"), Create("/live", ephemeral=True)])
    with pytest.raises(EntryExists):
        await store.create("/a")
    with pytest.raises(NoEntry):
        await store.create("/missing/a")
    with pytest.raises(NoEntry):
        await store.get("/missing")
    with pytest.raises(NoEntry):
        await store.children("/missing")
    with pytest.raises(HasChildren):
        await store.delete("/a")
    with pytest.raises(BadArguments):
        await store.create("/live/a")


async def test_a_multi_is_applied_as_a_whole_or_fails_with_the_index_of_its_first_invalid_operation(
    store: MetadataStore,
) -> None:
    assert await store.multi([Create("/a", b"1"), Set("/a", b"2"), Check("/a", 1), Create("/b")]) == [
        "/a",
        1,
        None,
        "/b",
    ]
    with pytest.raises(BadVersion) as caught:
        await store.multi([Delete("/b"), Create("/c"), Check("/a", 0), Delete("/missing")])
    assert caught.value.index == 2
    assert await store.children("/") == ["a", "b"]


async def test_each_group_of_a_pipeline_is_applied_or_fails_alone(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    outcomes = await store.pipeline(
        [[Set("/a", b"2", 0), Create("/b")], [Set("/a", b"3", 0)], [], [Create("/b")], [Set("/a", b"4", 1)]]
    )
    assert [type(outcome) for outcome in outcomes] == [list, BadVersion, list, EntryExists, list]
    assert (outcomes[0], outcomes[2], outcomes[4]) == ([1, "/b"], [], [2])
    assert (await store.get("/a")).data == b"4"
    assert await store.pipeline([]) == []


async def test_a_change_above_the_limit_is_refused_as_a_whole(store: MetadataStore) -> None:
    await store.create("/p")
    data = b"x" * (LONGEST_CHANGE // 2 - size_of(Create("/p/1")))
    largest, too_large = ([Create(f"/p/{name}", data) for name in names] for names in ("12", "345"))
    outcomes = await store.pipeline([largest, too_large, [Create("/p/b")]])
    assert [type(outcome) for outcome in outcomes] == [list, TooLarge, list]
    with pytest.raises(TooLarge, match="/p/5"):
        await store.multi(too_large)
    assert await store.children("/p") == ["1", "2", "b"]


async def test_calls_that_do_not_wait_for_each_other_are_applied_in_order(store: MetadataStore) -> None:
    await store.create("/a")
    versions = await asyncio.gather(*(store.set("/a", b"%d" % number) for number in range(20)))
    assert versions == list(range(1, 21))


async def test_sequential_entries_are_numbered_without_repetition(store: MetadataStore) -> None:
    """By the children ever created below the parent, whatever was deleted."""
    await store.create("/p")
    names = [await store.create("/p/n_", sequential=True) for _ in range(3)]
    assert names == ["/p/n_0000000000", "/p/n_0000000001", "/p/n_0000000002"]
    await store.multi([Delete(name) for name in names[:2]])
    assert (await store.get("/p")).children_version == 5
    created = await store.multi([Create("/p/x"), Create("/p/n_", b"x", sequential=True), Delete("/p/x")])
    assert created[1] == "/p/n_0000000004"


async def test_transactions_are_numbered_in_order(store: MetadataStore) -> None:
    await store.pipeline([[Create("/a")], [Create("/b"), Create("/b/c")], [Create("/b")], [Create("/d")]])
    entries = [entry for entry in await store.entries(["/a", "/b", "/b/c", "/d"]) if entry is not None]
    first = entries[0].created
    assert entries[1].created == entries[2].created
    assert first < entries[1].created < entries[3].created


async def test_an_entry_has_the_number_of_the_transaction_that_last_replaced_its_data(store: MetadataStore) -> None:
    await store.multi([Create("/a"), Create("/b")])
    created = (await store.get("/a")).created
    assert (await store.get("/a")).modified == created
    await store.multi([Set("/a", b"1"), Create("/a/child"), Create("/c")])
    await store.set("/b", b"2")
    await store.create("/a/other")
    entries = [entry for entry in await store.entries(["/a", "/b", "/c"]) if entry is not None]
    assert [entry.modified - created for entry in entries] == [1, 2, 1]
    assert entries[0].created == created


async def test_an_ephemeral_entry_belongs_to_the_session_and_ends_with_it(unopened: MetadataStore) -> None:
    assert unopened.session_id == 0
    await unopened.open()
    owner = unopened.session_id
    assert owner != 0
    await unopened.multi([Create("/live", ephemeral=True), Create("/kept")])
    entry = await unopened.get("/live")
    assert (entry.owner, entry.ephemeral) == (owner, True)
    assert (await unopened.get("/kept")).owner == 0
    await unopened.set("/live", b"x")
    assert (await unopened.get("/live")).owner == owner
    await unopened.close()
    assert unopened.session_id == 0
    await unopened.open()
    assert unopened.session_id not in (0, owner)
    assert await unopened.children("/") == ["kept"]
    await unopened.close()


async def test_a_watch_is_called_once_for_the_first_change(store: MetadataStore) -> None:
    seen: list[WatchEvent] = []
    await store.exists("/a", seen.append)
    await store.create("/a")
    await store.set("/a", b"1")
    assert seen == [WatchEvent(Change.CREATED, "/a")]
    await store.get("/a", seen.append)
    await store.children("/a", seen.append)
    await store.create("/a/b")
    assert seen[1:] == [WatchEvent(Change.CHILDREN, "/a")]
    await store.set("/a", b"2")
    assert seen[2:] == [WatchEvent(Change.CHANGED, "/a")]
    await store.children("/a", seen.append)
    await store.delete("/a/b")
    await store.children("/a", seen.append)
    await store.get("/a", seen.append)
    await store.delete("/a")
    assert seen[3:] == [WatchEvent(Change.CHILDREN, "/a"), *[WatchEvent(Change.DELETED, "/a")] * 2]


async def test_a_read_that_fails_sets_no_watch(store: MetadataStore) -> None:
    seen: list[WatchEvent] = []
    for read in (store.get, store.children):
        with pytest.raises(NoEntry):
            await read("/a", seen.append)
    await store.create("/a")
    await store.create("/a/b")
    assert seen == []


async def test_watches_are_called_in_the_order_of_the_changes(store: MetadataStore) -> None:
    seen: list[str] = []
    paths = [f"/{number}" for number in (3, 1, 2)]
    for path in paths[::-1]:
        await store.exists(path, lambda event: seen.append(event.path))
    await store.pipeline([[Create(path)] for path in paths])
    assert seen == paths


async def test_closing_the_session_calls_listeners_but_no_watches(unopened: MetadataStore) -> None:
    states: list[SessionState] = []
    seen: list[WatchEvent] = []
    unopened.add_session_listener(states.append)
    assert unopened.session_epoch == 0
    await unopened.open()
    assert (unopened.session_epoch, states) == (1, [SessionState.CONNECTED])
    await unopened.connected()
    await unopened.create("/live", ephemeral=True)
    await unopened.get("/live", seen.append)
    await unopened.close()
    await unopened.close()
    assert (states, seen) == ([SessionState.CONNECTED, SessionState.LOST], [])
    await unopened.open()
    assert (unopened.session_epoch, states[2:]) == (2, [SessionState.CONNECTED])
    await unopened.close()


async def test_a_session_that_is_not_open_refuses_all_calls(unopened: MetadataStore) -> None:
    async def refuses() -> None:
        calls = [
            unopened.get("/"),
            unopened.exists("/"),
            unopened.entries(["/"]),
            unopened.children("/"),
            unopened.create("/a"),
            unopened.multi([]),
            unopened.connected(),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call
        assert [type(outcome) for outcome in await unopened.pipeline([[Create("/a")], []])] == [StoreUnavailable] * 2

    await refuses()
    await unopened.close()
    await unopened.open()
    await unopened.close()
    await refuses()


async def test_a_cancelled_change_is_applied_all_the_same(store: MetadataStore) -> None:
    change = asyncio.ensure_future(store.create("/a"))
    await asyncio.sleep(0)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    await store.create("/b")
    assert await store.children("/") == ["a", "b"]


async def test_a_change_that_can_be_sent_again_fails_as_any_other_while_nothing_is_lost(store: MetadataStore) -> None:
    assert await multi_or_read_back(store, [Create("/a", b"1")]) == ["/a"]
    with pytest.raises(EntryExists):
        await multi_or_read_back(store, [Create("/a", b"1")])
    found = await store.get("/a")
    assert found == Entry(b"1", 0, 0, 0, found.created, found.created)

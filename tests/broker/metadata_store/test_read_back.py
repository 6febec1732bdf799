"""Messages take a second in each direction: a cut half a second after a call loses the call, one and a half seconds
after it the answer alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from odradek.broker.metadata_store.interface import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EntryExists,
    MetadataStore,
    NoEntry,
    Operation,
    Set,
    StoreUnavailable,
)
from odradek.broker.metadata_store.read_back import multi_or_read_back, pipeline_or_read_back
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from tests.simulation.loop import in_virtual_time, run_in_virtual_time

CALL_LOST, ANSWER_LOST = 0.5, 1.5
SESSION_TIMEOUT_MS = 60_000


class Room:
    """A session with slow messages, and another one without a delay for whatever happens meanwhile."""

    def __init__(self) -> None:
        self.shared = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS, delay=lambda name: float(name == "slow"))
        self.store = self.shared.session("slow")
        self.other: MetadataStore = self.shared.session("other")

    async def opened(self) -> Room:
        await self.store.open()
        await self.other.open()
        await self.other.multi([Create("/epoch", b"1"), Create("/a", b"0"), Create("/gone")])
        return self

    def cut_after(self, seconds: float, *, healed_after: float = 0.1) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, self.shared.cut, "slow")
        loop.call_later(seconds + healed_after, self.shared.heal, "slow")


GROUPS: list[tuple[list[Operation], list[str | int | None]]] = [
    ([Check("/epoch", 0), Set("/a", b"1", 0)], [None, 1]),
    ([Set("/a", b"1"), Set("/epoch", b"2", 0)], [1, 1]),
    ([Create("/new", b"x"), Create("/new/child")], ["/new", "/new/child"]),
    ([Create("/live", b"x", ephemeral=True), Set("/epoch", b"2", 0)], ["/live", 1]),
    ([Delete("/gone")], [None]),
    ([Delete("/gone", 0), Create("/gone", b"again")], [None, "/gone"]),
    ([Create("/new"), Set("/new", b"x", 0)], ["/new", 1]),
]


@pytest.mark.parametrize("lost", [CALL_LOST, ANSWER_LOST])
@pytest.mark.parametrize(("operations", "results"), GROUPS)
def test_a_change_succeeds_whether_it_is_the_call_or_the_answer_that_is_lost(
    operations: Sequence[Operation], results: list[str | int | None], lost: float
) -> None:
    async def test() -> None:
        room = await Room().opened()
        room.cut_after(lost)
        assert await multi_or_read_back(room.store, operations) == results
        entries = dict(zip(["/a", "/epoch"], await room.other.entries(["/a", "/epoch"]), strict=True))
        for path, entry in entries.items():
            assert entry is not None
            assert entry.version <= 1, f"{path} was changed twice"

    run_in_virtual_time(test())


@in_virtual_time
async def test_a_change_is_sent_again_as_often_as_the_connection_is_lost() -> None:
    room = await Room().opened()
    for after in (ANSWER_LOST, 4, 6, 9):
        room.cut_after(after)
    assert await multi_or_read_back(room.store, [Set("/a", b"1", 0)]) == [1]
    assert asyncio.get_running_loop().time() > 9


@in_virtual_time
async def test_a_change_of_another_is_not_taken_for_ones_own() -> None:
    room = await Room().opened()
    cases: list[tuple[list[Operation], list[Operation], type[Exception]]] = [
        ([Check("/epoch", 0), Set("/a", b"1", 0)], [Set("/a", b"other", 0)], BadVersion),
        ([Create("/new", b"1")], [Create("/new", b"other")], EntryExists),
        ([Create("/live", b"1", ephemeral=True)], [Create("/live", b"1", ephemeral=True)], EntryExists),
        ([Set("/gone", b"1", 0)], [Delete("/gone")], NoEntry),
    ]
    for operations, others, error in cases:
        room.cut_after(CALL_LOST, healed_after=3)
        change = asyncio.ensure_future(multi_or_read_back(room.store, operations))
        await asyncio.sleep(2)
        await room.other.multi(others)
        with pytest.raises(error):
            await change


@in_virtual_time
async def test_a_failing_check_stands_even_where_the_change_was_applied_before() -> None:
    room = await Room().opened()
    room.cut_after(ANSWER_LOST, healed_after=3)
    change = asyncio.ensure_future(multi_or_read_back(room.store, [Check("/epoch", 0), Set("/a", b"1", 0)]))
    await asyncio.sleep(2)
    await room.other.set("/epoch", b"2")
    with pytest.raises(BadVersion) as caught:
        await change
    assert caught.value.path == "/epoch"
    assert (await room.other.get("/a")).data == b"1"


@in_virtual_time
async def test_an_entry_that_was_changed_since_is_not_recognized() -> None:
    room = await Room().opened()
    room.cut_after(ANSWER_LOST, healed_after=3)
    change = asyncio.ensure_future(multi_or_read_back(room.store, [Set("/a", b"1", 0)]))
    await asyncio.sleep(2)
    assert await room.other.set("/a", b"2", 1) == 2
    with pytest.raises(BadVersion):
        await change


@in_virtual_time
async def test_a_change_is_not_sent_again_in_another_session() -> None:
    room = await Room().opened()
    room.cut_after(CALL_LOST, healed_after=SESSION_TIMEOUT_MS / 1000 + 1)
    with pytest.raises(ConnectionLost):
        await multi_or_read_back(room.store, [Set("/a", b"1", 0)])
    await room.store.connected()
    assert (await room.other.get("/a")).data == b"0"


@in_virtual_time
async def test_a_session_that_is_closed_ends_the_attempts() -> None:
    room = await Room().opened()
    room.cut_after(CALL_LOST, healed_after=100)
    change = asyncio.ensure_future(multi_or_read_back(room.store, [Set("/a", b"1", 0)]))
    await asyncio.sleep(2)
    await room.store.close()
    with pytest.raises(StoreUnavailable):
        await change


@in_virtual_time
async def test_the_path_of_a_sequential_entry_is_unknown_if_its_answer_was_lost() -> None:
    room = await Room().opened()
    room.cut_after(ANSWER_LOST)
    notified: list[Operation] = [Set("/a", b"1", 0), Create("/gone/n_", sequential=True)]
    assert await multi_or_read_back(room.store, notified) == [1, None]
    assert await room.other.children("/gone") == ["n_0000000000"]


@pytest.mark.parametrize("seed", range(20))
def test_groups_that_are_lost_are_sent_again_and_the_others_are_not(seed: int) -> None:
    async def test() -> None:
        room, source = await Room().opened(), random.Random(seed)
        asyncio.get_running_loop().call_later(0.5, lambda: room.shared.cut("slow", lost_answers=source))
        asyncio.get_running_loop().call_later(3, room.shared.heal, "slow")
        groups = [[Create(f"/{number}")] for number in range(5)]
        outcomes = await pipeline_or_read_back(room.store, [*groups, [Set("/a", b"x", 9)], [Set("/a", b"1", 0)]])
        assert outcomes[:5] == [[f"/{number}"] for number in range(5)]
        assert isinstance(outcomes[5], BadVersion)
        assert outcomes[6] == [1]

    run_in_virtual_time(test())


@pytest.mark.parametrize("seed", range(10))
def test_counting_by_compare_and_set_counts_each_time_once_however_often_the_connection_is_lost(seed: int) -> None:
    async def test() -> None:
        source = random.Random(seed)
        shared = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS, delay=lambda _: source.uniform(0, 0.05))
        store = shared.session("1")
        await store.open()
        await store.create("/count", b"0")
        lost = 0

        async def disturb() -> None:
            nonlocal lost
            while True:
                shared.cut("1", lost_answers=source)
                lost += 1
                await asyncio.sleep(source.uniform(0, 0.3))
                shared.heal("1")
                await asyncio.sleep(source.uniform(0, 0.3))

        disturbing = asyncio.ensure_future(disturb())
        for number in range(100):
            assert await multi_or_read_back(store, [Set("/count", b"%d" % number, number)]) == [number + 1]
        disturbing.cancel()
        assert lost > 50

    run_in_virtual_time(test())

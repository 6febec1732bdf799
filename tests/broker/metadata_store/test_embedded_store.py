import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence

import pytest

from odradek.broker.metadata_store.embedded_store import DEFAULT_COMPACT_BYTES, EmbeddedMetadataStore, read_files
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Check,
    Create,
    Delete,
    Entry,
    EntryExists,
    Operation,
    Outcome,
    SessionState,
    Set,
    StoreDamaged,
    StoreUnavailable,
)
from odradek.broker.metadata_store.journal import (
    JOURNAL_NAME,
    SNAPSHOT_NAME,
    encode_journal_header,
    encode_line,
    encode_transaction,
)
from odradek.broker.metadata_store.journal_disk import JournalDisk
from tests.broker.controller.harness import DIRECTORY, store_disk
from tests.broker.metadata_store.test_journal import same
from tests.memory_files import ForgetfulFiles

JOURNAL = f"{DIRECTORY}/{JOURNAL_NAME}"
SNAPSHOT = f"{DIRECTORY}/{SNAPSHOT_NAME}"


class CheckedStore(EmbeddedMetadataStore):
    """Is checked after each step, also what a power cut would leave."""

    async def open(self) -> None:
        await super().open()
        await self.check_all()

    async def close(self) -> None:
        await super().close()
        await self.check_all()

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        outcomes = await super().pipeline(groups)
        await self.check_all()
        return outcomes

    async def check_all(self) -> None:
        async with self._writing:
            self.check()
            if self._refusal is None:
                assert isinstance(self._files, ForgetfulFiles)
                durable = read_files(JournalDisk(self._disk.directory, self._files.crash()))
                assert same(durable.tree, read_files(self._disk).tree), "not all changes are synced"


async def opened(files: ForgetfulFiles, compact_bytes: int = DEFAULT_COMPACT_BYTES) -> CheckedStore:
    store = CheckedStore(DIRECTORY, files, compact_bytes=compact_bytes)
    await store.open()
    return store


async def test_acknowledged_changes_survive_a_crash() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    assert await store.set("/a", b"2") == 1
    await store.multi([Create("/a/b", b"x"), Create("/a/c")])
    await store.delete("/a/c")
    again = await opened(files.crash())
    assert (await again.get("/a")).data == b"2"
    assert await again.children("/a") == ["b"]


async def test_a_crash_at_any_byte_of_a_change_keeps_all_of_it_or_nothing() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    before = len(files.read_file(JOURNAL))
    await store.multi([Set("/a", b"2"), Create("/a/b")])
    after = files.read_file(JOURNAL)
    for cut in range(before, len(after) + 1):
        torn = store_disk({JOURNAL: after[:cut]})
        again = await opened(torn)
        entry, child = await again.get("/a"), await again.exists("/a/b")
        assert (entry.data, child is not None) in [(b"1", False), (b"2", True)]
        await again.set("/a", b"3")
        assert (await (await opened(torn)).get("/a")).data == b"3", "the store must write on after a torn tail"


async def test_ephemeral_entries_end_with_the_session_and_with_the_process() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    await store.create("/live", ephemeral=True)
    files = files.crash()
    store = await opened(files)
    assert await store.exists("/live") is None
    await store.create("/live", ephemeral=True)
    await store.close()
    store = await opened(files)
    assert await store.children("/") == ["a"]


async def test_creation_numbers_of_ephemeral_entries_grow_across_restarts() -> None:
    files, numbers = store_disk(), []
    for _ in range(3):
        store = await opened(files)
        await store.create("/live", ephemeral=True)
        numbers.append((await store.get("/live")).created)
        await store.close()
    assert numbers == sorted(set(numbers))


async def test_a_session_owns_its_ephemeral_entries_and_no_later_session_has_its_id() -> None:
    files, owners = store_disk(), []
    for _ in range(3):
        store = await opened(files)
        await store.create("/live", ephemeral=True)
        owners.append((await store.get("/live")).owner)
        assert owners[-1] == store.session_id
        files = files.crash()
    assert owners == sorted(set(owners))
    assert 0 not in owners


async def test_the_numbers_of_an_entry_are_the_same_after_a_restart() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    await store.set("/a", b"2")
    entry = await store.get("/a")
    assert entry.modified > entry.created
    await store.close()
    assert await (await opened(files)).get("/a") == entry


async def test_entries_of_a_journal_before_sessions_had_ids_are_read() -> None:
    files = store_disk()
    rows = [["/", None, 0, 2, 0, False], ["/a", "x", 3, 0, 1, False], ["/live", None, 0, 0, 1, True]]
    journal = encode_journal_header() + encode_line({"number": 1, "entries": rows})
    files.replace_file(JOURNAL, journal)
    store = await opened(files)
    assert await store.get("/a") == Entry(b"x", 3, 0, 0, 1, 1)
    assert await store.children("/") == ["a"], "the entry of an earlier session is deleted"


async def test_a_pipeline_is_one_write_and_one_sync_and_each_group_is_applied_or_fails_alone() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    files.synced_paths.clear()
    outcomes = await store.pipeline(
        [
            [Create("/a/b"), Check("/a", 0)],
            [Set("/a", b"2", 5)],
            [Set("/a", b"2", 0), Create("/a/b")],
            [Check("/a", 0)],
            [Set("/a", b"3", 0)],
            [Delete("/a/b"), Set("/a", b"4", 1)],
        ]
    )
    assert files.synced_paths == [JOURNAL]
    assert [type(outcome) for outcome in outcomes] == [list, BadVersion, EntryExists, list, list, list]
    assert (outcomes[0], outcomes[3:]) == (["/a/b", None], [[None], [1], [None, 2]])
    assert isinstance(outcomes[2], EntryExists)
    assert outcomes[2].index == 1
    again = await opened(files.crash())
    assert (await again.get("/a")).data == b"4"
    assert await again.children("/a") == []


async def test_a_pipeline_cut_at_any_byte_keeps_whole_groups_from_the_front() -> None:
    files = store_disk()
    store = await opened(files)
    before = len(files.read_file(JOURNAL))
    await store.pipeline([[Create("/a"), Create("/a/x")], [Create("/b"), Create("/b/x")]])
    after = files.read_file(JOURNAL)
    for cut in range(before, len(after) + 1):
        again = await opened(store_disk({JOURNAL: after[:cut]}))
        names = await again.children("/")
        assert names in ([], ["a"], ["a", "b"])
        assert [await again.children(f"/{name}") for name in names] == [["x"]] * len(names)


async def test_a_pipeline_that_cannot_be_written_fails_in_every_group_and_changes_nothing() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    files.room = 20
    outcomes = await store.pipeline([[Create("/b")], [Create("/b")], [Set("/a", b"2")], [Create("/c", ephemeral=True)]])
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 4
    files.room = None
    assert (await store.entries(["/a", "/b", "/c"]))[1:] == [None, None]
    assert (await store.get("/a")).data == b"1"
    await store.close()
    assert [type(outcome) for outcome in await store.pipeline([[Create("/b")]])] == [StoreUnavailable]


async def test_the_session_epoch_and_its_listeners_follow_open_and_close() -> None:
    files, states = store_disk(), list[SessionState]()
    store = CheckedStore(DIRECTORY, files)
    store.add_session_listener(states.append)
    assert store.session_epoch == 0
    with pytest.raises(StoreUnavailable):
        await store.create("/a")
    await store.open()
    assert (store.session_epoch, states) == (1, [SessionState.CONNECTED])
    await store.close()
    await store.close()
    assert states == [SessionState.CONNECTED, SessionState.LOST]
    with pytest.raises(StoreUnavailable):
        await store.get("/")
    await store.open()
    assert store.session_epoch == 2


async def test_a_full_disk_refuses_changes_and_loses_nothing_until_there_is_space() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    files.room = 20
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.set("/a", b"2" * 50)
    assert (await store.get("/a")).data == b"1"
    files.room = None
    await store.set("/a", b"3")
    assert (await (await opened(files)).get("/a")).data == b"3"


@pytest.mark.parametrize("refusal", ["fail_sync", "fail_truncate"])
async def test_a_disk_in_an_unknown_state_is_not_written_until_the_store_is_reopened(refusal: str) -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    setattr(files, refusal, OSError(errno.EIO, "Input/output error"))
    files.room = 20 if refusal == "fail_truncate" else 1000
    with pytest.raises(StoreUnavailable):
        await store.set("/a", b"2" * 50)
    setattr(files, refusal, None)
    files.room = None
    with pytest.raises(StoreUnavailable, match="could not be undone"):
        await store.set("/a", b"3")
    again = await opened(files)
    await again.set("/a", b"4")
    assert (await again.get("/a")).data == b"4"


async def test_the_journal_is_compacted_and_survives_every_crash_in_between() -> None:
    files = store_disk()
    store = await opened(files, compact_bytes=2000)
    await store.create("/a", b"")
    states: list[dict[str, bytes]] = []
    for number in range(100):
        journal_before = files.read_file(JOURNAL)
        await store.set("/a", b"%d" % number)
        if len(files.read_file(JOURNAL)) < len(journal_before):
            # The state after a crash between the two renames: the new snapshot beside the old journal.
            states.append({**files.contents(), JOURNAL: journal_before})
        assert len(files.read_file(JOURNAL)) < 2500
    assert len(states) >= 2
    assert (await (await opened(files)).get("/a")).data == b"99"
    for state in states:
        assert (await (await opened(store_disk(state))).get("/a")).data is not None


async def test_a_compaction_on_a_full_disk_keeps_the_written_change() -> None:
    files = store_disk()
    store = await opened(files, compact_bytes=100)
    files.room = 520 - len(encode_journal_header())
    await store.create("/a", b"x" * 250)
    assert not files.exists(SNAPSHOT)
    files.room = None
    assert (await (await opened(files)).get("/a")).data == b"x" * 250


async def test_damage_is_an_error_with_file_line_and_byte_and_leaves_the_files_unchanged() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    await store.create("/b", b"1")
    journal = files.read_file(JOURNAL)
    position = journal.index(b"/a")
    damaged = journal.replace(b"/a", b"/x", 1)
    files.replace_file(JOURNAL, damaged)
    with pytest.raises(StoreDamaged, match=r"metadata\.journal, line 2, byte ") as caught:
        await opened(files)
    assert int(str(caught.value).split("byte ")[1].split(":")[0]) <= position
    assert files.read_file(JOURNAL) == damaged


async def test_a_snapshot_without_its_journal_is_damage() -> None:
    files = store_disk()
    store = await opened(files, compact_bytes=10)
    await store.create("/a", b"1")
    assert files.exists(SNAPSHOT)
    files.remove(JOURNAL)
    with pytest.raises(StoreDamaged, match=r"metadata\.snapshot without metadata\.journal"):
        await opened(files)


async def test_concurrent_changes_are_written_in_turn_and_a_cancelled_one_is_not_lost() -> None:
    files, gate = store_disk(), asyncio.Event()

    async def slowly(work):  # type: ignore[no-untyped-def]
        await gate.wait()
        work()

    store = await opened(files)
    store._run_blocking = slowly
    cancelled = asyncio.create_task(store.create("/cancelled"))
    others = [asyncio.create_task(store.create(f"/{number}")) for number in range(5)]
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*others)
    again = await opened(files)
    assert await again.children("/") == ["0", "1", "2", "3", "4", "cancelled"]


async def test_on_a_full_disk_a_session_starts_in_memory_and_is_written_before_the_next_change() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/epoch", b"1")
    await store.create("/me", b"", ephemeral=True)
    files = files.crash()
    files.room = 0
    again = await opened(files)
    assert await again.exists("/me") is None
    await again.multi([Create("/me", b"", ephemeral=True), Set("/epoch", b"2")])
    assert (await again.get("/epoch")).data == b"2"
    with pytest.raises(StoreUnavailable):
        await again.set("/epoch", b"3")
    files.room = None
    await again.create("/kept", b"x")
    last = await opened(files.crash())
    assert ((await last.get("/epoch")).data, (await last.get("/kept")).data) == (b"2", b"x")


async def test_on_a_full_disk_a_torn_tail_is_cut_off_and_a_complete_change_in_it_is_kept() -> None:
    files = store_disk()
    store = await opened(files)
    await store.create("/a", b"1")
    before = len(files.read_file(JOURNAL))
    await store.create("/b", b"2")
    journal = files.read_file(JOURNAL)
    for cut in (before + 5, len(journal) - 1):
        torn = store_disk({JOURNAL: journal[:cut]})
        torn.room = 0
        again = await opened(torn)
        assert torn.contents() == {JOURNAL: journal[:before]}
        torn.room = None
        await again.create("/c", b"3")
        last = await opened(torn)
        assert await last.children("/") == (["a", "c"] if cut < len(journal) - 1 else ["a", "b", "c"])


def append_unsynced(store: CheckedStore) -> None:
    """As a journal that forgets to sync."""
    line = encode_transaction(store._tree.number + 1, {})
    journal = store._disk._journal
    assert journal is not None
    journal.write([line], store._disk.journal_bytes)
    store._disk.journal_bytes += len(line)
    store._tree.number += 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda store: setattr(store._disk, "journal_bytes", store._disk.journal_bytes - 1),
        lambda store: store._disk._journal.write([b"left behind"], store._disk.journal_bytes),
        lambda store: store._disk.replace(JOURNAL_NAME, encode_journal_header()),
        lambda store: store._disk.replace_journal(encode_journal_header()),
        lambda store: store._disk.append(encode_transaction(store._tree.number + 1, {})),
        append_unsynced,
        lambda store: store._unwritten.append(encode_transaction(store._tree.number + 1, {})),
        lambda store: store._tree.apply(store._tree.number, {"/a": None}),
        lambda store: store._tree._entries.pop("/a"),
        lambda store: setattr(store, "_snapshot_bytes", 0),
        lambda store: setattr(store, "session_id", store.session_id + 1),
        lambda store: setattr(store, "_refusal", "closed"),
    ],
    ids=[
        "length",
        "failed write",
        "other file",
        "lost changes",
        "not applied",
        "not synced",
        "unwritten",
        "not written",
        "tree",
        "snapshot",
        "session",
        "closed",
    ],
)
async def test_a_broken_invariant_of_a_store_and_its_journal_is_found(
    damage: Callable[[CheckedStore], object],
) -> None:
    store = await opened(store_disk(), compact_bytes=150)
    await store.create("/a", b"x" * 100)
    await store.create("/live", ephemeral=True)
    assert store._snapshot_bytes > 0
    assert store._disk.journal_bytes > len(encode_journal_header())
    damage(store)
    with pytest.raises((AssertionError, StoreDamaged)):
        await store.check_all()

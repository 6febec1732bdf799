"""The metadata store of a standalone node: a tree in memory, with a journal and a snapshot in the first log directory.

Opening reads the snapshot and then the journal (`journal.py` has the format), and ends the previous session by
deleting its ephemeral entries. Each change is checked, appended to the journal, synced, and only then applied and
answered.

    (A) Changes are written one at a time, the groups of a pipeline together; others wait. `run_blocking` runs the
        writes: inline by default, or in a thread when the broker passes `Background.run_in_thread`. What is short
        needs no thread on a disk that syncs at once (a temporary directory).
    (B) A failed write (disk full) is undone by truncating the journal to its previous length, and raises
        StoreUnavailable; the next write may succeed. If truncating or syncing fails as well, the state on disk is
        unknown: every change is refused until the store is reopened. A change of ephemeral entries (a registration, an
        election) is valid for this session only. On a full disk it is applied in memory, and written before the next
        change: the broker starts, and its logs can be read. A pipeline fails as a whole, unless all of its changes are
        such ones.
    (C) The journal is compacted when it is larger than both the snapshot and `compact_bytes`: a new snapshot is written
        beside the old one, synced and renamed, then an empty journal likewise. A crash between the two renames leaves
        transactions in the journal that the snapshot already contains; they are skipped.
    (D) A torn tail (the journal's cases A and B) is logged and removed, because opening then compacts the journal.
    (E) Files that were copied to ZooKeeper are not opened again (`migration_note.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import structlog

from odradek.broker.background.stepwise import Pace, finished, in_steps, others_between
from odradek.broker.background.tasks import uncanceled
from odradek.broker.metadata_store.frozen_store import FrozenStore
from odradek.broker.metadata_store.interface import (
    Create,
    Delete,
    Entry,
    MetadataStore,
    NoEntry,
    Operation,
    Outcome,
    SessionState,
    StoreDamaged,
    StoreUnavailable,
    Watch,
    WatchEvent,
)
from odradek.broker.metadata_store.journal import (
    JOURNAL_NAME,
    SNAPSHOT_NAME,
    JournalContent,
    encode_journal_header,
    encode_snapshot,
    encode_transaction,
    read_journal,
    read_snapshot,
)
from odradek.broker.metadata_store.journal_disk import JournalDisk
from odradek.broker.metadata_store.migration_note import read_note, why_not_without_zookeeper
from odradek.broker.metadata_store.tree import MetadataTree, Transaction
from odradek.broker.metadata_store.watch_table import Kind, WatchTable
from odradek.storage.files import Files, is_full

DEFAULT_COMPACT_BYTES = 1 << 20
APPLYING_COST = 2
"""The cost of applying a changed entry, in items of a step."""
SHORT_BYTES = 1 << 16
"""What reading and writing takes a few milliseconds at most."""

RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]

log = structlog.get_logger("controller.store")


async def run_inline(work: Callable[[], None]) -> None:
    """The default `run_blocking`: runs the work synchronously."""
    work()


class Content(NamedTuple):
    """What the files contain. `journal` is None if there is no journal, as before the first start."""

    tree: MetadataTree
    snapshot_bytes: int
    journal: JournalContent | None


def read_files(disk: JournalDisk) -> Content:
    """Reads the files, and changes nothing. Raises StoreDamaged and OSError."""
    tree = MetadataTree()
    snapshot, journal = disk.read(SNAPSHOT_NAME), disk.read(JOURNAL_NAME)
    if snapshot is not None:
        read_snapshot(SNAPSHOT_NAME, snapshot, tree)
    if journal is None:
        if snapshot is not None:
            reason = f"metadata store damaged: {SNAPSHOT_NAME} without {JOURNAL_NAME} in {disk.directory}"
            raise StoreDamaged("", reason)
        return Content(tree, 0, None)
    return Content(tree, len(snapshot or b""), read_journal(JOURNAL_NAME, journal, tree))


class Beginning(NamedTuple):
    """What a new store begins with: its journal, and the entries after the journal's transaction of this number."""

    journal: bytes
    number: int
    entries: Mapping[str, Entry | None]


@cache
def beginning(paths: tuple[str, ...]) -> Beginning:
    """Returns the beginning of a store with these entries, parents first. All stores of a process share it: nothing of
    it changes.
    """
    made = finished(MetadataTree().stage([Create(path) for path in paths], 0))
    if not made.entries:
        return Beginning(encode_journal_header(), 0, MappingProxyType({}))
    journal = encode_journal_header() + encode_transaction(made.number, made.entries)
    return Beginning(journal, made.number, MappingProxyType(made.entries))


class EmbeddedMetadataStore(MetadataStore):
    """A MetadataStore backed by two files in `directory`. The log directory's lock keeps other processes out.

    `run_blocking` runs writes and syncs (A); `compact_bytes` is the minimum size of a journal that is compacted (C). A
    new store has entries at `first_paths`.
    A session's id is the number of the first transaction that it may write.
    """

    is_shared = False

    def __init__(
        self,
        directory: str,
        files: Files,
        *,
        run_blocking: RunBlocking = run_inline,
        compact_bytes: int = DEFAULT_COMPACT_BYTES,
        first_paths: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self._files = files
        self._disk = JournalDisk(directory, files)
        self._run_blocking = run_blocking
        self._compact_bytes = compact_bytes
        self._first_paths = first_paths
        self._snapshot_bytes = 0
        self._tree = MetadataTree()
        self._unwritten: list[bytes] = []
        self._refusal: str | None = "not open"
        self._writing = asyncio.Lock()
        self._pace = Pace()
        """Of all changes: other tasks run also between many small ones that need not wait for the disk."""
        self._watches: WatchTable[Watch] = WatchTable()

    async def open(self) -> None:
        """Loads the files from disk. Raises StoreDamaged, or StoreUnavailable if the disk cannot be read or written, or
        if the content has moved to ZooKeeper (E).
        """
        self._unwritten.clear()
        try:
            await self._on_disk(self._load, self._disk.size())
        except OSError as error:
            raise StoreUnavailable("", f"cannot open the metadata store in {self._disk.directory}: {error}") from error
        self._refusal = None
        self.session_epoch += 1
        self.session_id = self._tree.number + 1
        left_behind = self._tree.ephemeral_paths()
        if left_behind:
            await self.multi([Delete(path) for path in left_behind])
        log.info(
            "metadata store opened",
            directory=self._disk.directory,
            entries=len(self._tree),
            transaction=self._tree.number,
        )
        self._notify(SessionState.CONNECTED)

    async def close(self) -> None:
        """Deletes the session's ephemeral entries and closes the files. May be called again, or before `open`."""
        self._watches.clear()
        await self._delete_ephemeral()
        await self.abandon()

    async def _delete_ephemeral(self) -> None:
        if self._refusal is None:
            ephemeral = self._tree.ephemeral_paths()
            try:
                if ephemeral:
                    await self.multi([Delete(path) for path in ephemeral])
            except StoreUnavailable as error:
                log.warning("ephemeral entries kept until next start", reason=str(error))

    async def abandon(self) -> None:
        """See MetadataStore."""
        self._watches.clear()
        async with self._writing:
            was_open = self._refusal is None
            self._refusal = "closed"
            self.session_id = 0
            self._disk.close()
        self._watches.clear()
        if was_open:
            self._notify(SessionState.LOST)

    def check(self) -> None:
        """Asserts what holds between two changes: what the files contain, and then what could not be written yet (B),
        is the tree; ephemeral entries belong to the session. Nothing is known of the files after a failed write that
        could not be undone. Raises OSError.
        """
        self._tree.check()
        if self._refusal == "closed":
            assert not self._disk.is_writable, "a closed store has an open journal"
            assert self.session_id == 0, "a closed store has a session"
        if self._refusal is not None:
            return
        self._disk.check()
        content = read_files(self._disk)
        assert content.journal is not None, "there is no journal"
        assert not content.journal.torn, "the journal ends with a part of a change"
        assert content.snapshot_bytes == self._snapshot_bytes, f"the snapshot has {content.snapshot_bytes} bytes"
        read_journal("what is not written", b"".join([encode_journal_header(), *self._unwritten]), content.tree)
        assert content.tree.number == self._tree.number, f"the files end with transaction {content.tree.number}"
        assert dict(content.tree.items()) == dict(self._tree.items()), "the files have other entries"
        owners = {entry.owner for _, entry in self._tree.items() if entry.ephemeral}
        assert owners <= {self.session_id}, f"the sessions {owners} have entries, and there is only {self.session_id}"

    def freeze(self) -> FrozenStore:
        """Returns the content of this instant. Raises StoreUnavailable."""
        self._check_open()
        return FrozenStore(self._tree, self.session_id)

    async def connected(self) -> None:
        """See MetadataStore."""
        self._check_open()

    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """See MetadataStore."""
        self._check_open()
        entry = self._tree.get(path)
        if entry is None:
            raise NoEntry(path, "no such entry")
        if watch is not None:
            self._watches.add(Kind.DATA, path, watch)
        return entry

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """See MetadataStore."""
        self._check_open()
        if watch is not None:
            self._watches.add(Kind.DATA, path, watch)
        return self._tree.get(path)

    async def entries(self, paths: Sequence[str]) -> list[Entry | None]:
        """See MetadataStore."""
        self._check_open()
        return [self._tree.get(path) async for path in others_between(paths)]

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See MetadataStore."""
        self._check_open()
        names = self._tree.children(path)
        if watch is not None:
            self._watches.add(Kind.CHILDREN, path, watch)
        return names

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        """See MetadataStore."""
        return await uncanceled(self._pipeline(groups))

    async def _pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        """Runs to completion even if the caller is canceled: whatever is in the journal must also be in the tree."""
        async with self._writing:
            try:
                self._check_open()
                staged = await in_steps(self._tree.stage_all(groups, self.session_id))
                transactions = [each for each in staged if isinstance(each, Transaction)]
                await self._write([each for each in transactions if each.entries])
            except StoreUnavailable as error:
                return [StoreUnavailable(error.path, error.reason) for _ in groups]
            await self._apply(transactions)
            if self._disk.journal_bytes > max(self._compact_bytes, self._snapshot_bytes):
                await self._compact_if_possible()
        return [each.results if isinstance(each, Transaction) else each for each in staged]

    async def _apply(self, transactions: Sequence[Transaction]) -> None:
        """Makes written transactions visible, each as a whole with its watches; readers may run between two of them."""
        pace = Pace()
        for transaction in transactions:
            if transaction.entries:
                self._tree.apply(transaction.number, transaction.entries)
            self._fire(transaction.events)
            if pace.step_ends(APPLYING_COST * len(transaction.entries)):
                await asyncio.sleep(0)

    async def _write(self, transactions: Sequence[Transaction]) -> None:
        if not transactions:
            return
        written_before = len(self._unwritten)
        for transaction in transactions:
            self._unwritten.append(encode_transaction(transaction.number, transaction.entries))
            if self._pace.step_ends(len(transaction.entries)):
                await asyncio.sleep(0)
        lines = b"".join(self._unwritten)
        try:
            await self._on_disk(lambda: self._disk.append(lines), len(lines))
        except OSError as error:
            await self._take_back(error)
            if self._refusal is not None or not (is_full(error) and all(map(self._is_of_session, transactions))):
                del self._unwritten[written_before:]
                raise StoreUnavailable("", f"cannot write {JOURNAL_NAME}: {error}") from error
        else:
            self._unwritten.clear()

    async def _on_disk(self, work: Callable[[], None], size: int = 0) -> None:
        """(A) `size`: how many bytes are read or written."""
        if self._files.waits_for_disk or size > SHORT_BYTES:
            await self._run_blocking(work)
        else:
            work()

    def _is_of_session(self, transaction: Transaction) -> bool:
        """Whether the transaction creates, changes or deletes an ephemeral entry."""
        entries = [(entry or self._tree.get(path)) for path, entry in transaction.entries.items()]
        return any(entry is not None and entry.ephemeral for entry in entries)

    async def _take_back(self, cause: OSError) -> None:
        """Undoes a failed write (case B)."""
        try:
            await self._on_disk(self._disk.take_back)
        except OSError as error:
            self._refusal = f"a failed write ({cause}) could not be undone: {error}"
        log.error(
            "metadata change not written",
            directory=self._disk.directory,
            error=str(cause),
            refusing=self._refusal is not None,
        )

    async def _compact_if_possible(self) -> None:
        """Compacts the journal (case C). A failure does not fail the change, which is already written: the journal
        keeps growing, and the next change tries again.
        """
        try:
            await self._run_blocking(self._compact)
        except OSError as error:
            log.warning("metadata journal not compacted", directory=self._disk.directory, error=str(error))
            if not self._disk.is_writable:
                self._refusal = f"the journal could not be replaced: {error}"

    def _compact(self) -> None:
        snapshot = encode_snapshot(self._tree)
        self._disk.replace(SNAPSHOT_NAME, snapshot)
        self._snapshot_bytes = len(snapshot)
        self._disk.replace_journal(encode_journal_header())
        self._unwritten.clear()

    def _load(self) -> None:
        note = read_note(self._files, self._disk.directory)
        if note is not None:
            raise StoreUnavailable("", why_not_without_zookeeper(note, self._disk.directory))
        self._tree, self._snapshot_bytes, journal = read_files(self._disk)
        if journal is None:
            begins = beginning(self._first_paths)
            self._disk.replace_journal(begins.journal)
            self._tree.apply(begins.number, begins.entries)
        elif journal.torn:
            log.warning("unfinished change at journal end dropped", directory=self._disk.directory)
            self._drop_tail(journal)
        else:
            self._disk.open_journal(journal.whole_bytes)

    def _drop_tail(self, content: JournalContent) -> None:
        """Removes a torn tail (case D). On a full disk the tail is truncated; a complete change in it is written with
        the next one.
        """
        try:
            self._compact()
        except OSError as error:
            if not is_full(error):
                raise
            self._disk.open_journal(content.whole_bytes)
            self._disk.take_back()
            self._unwritten = [content.kept_tail] if content.kept_tail else []

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise StoreUnavailable("", f"the metadata store is unavailable: {self._refusal}")

    def _fire(self, events: list[WatchEvent]) -> None:
        taken = [(watch, event) for event in events for watch in self._watches.take(event)]
        for watch, event in taken:
            watch(event)

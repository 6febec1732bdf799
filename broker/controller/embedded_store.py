"""The metadata store of a node that stands alone: a tree in memory, a journal and a snapshot under the first log
directory.

Opening reads the snapshot and then the journal (`metadata_journal.py` has the format), and ends the last session:
ephemeral entries that it left behind go. Every change is checked, appended to the journal, synced, and only then
applied and answered.

    (A) One change is written at a time; others wait their turn. `run_blocking` is where the writing runs: inline by
        default, in a thread when the broker hands in `Background.run_in_thread`.
    (B) A write that fails (disk full) is taken back by cutting the journal to its length before, and raises
        StoreUnavailable; the next one may succeed. Where cutting or syncing fails, too, nobody knows what is on the
        disk: every change is refused from then on, until the store is opened again.
        A change of ephemeral entries (a registration, an election) holds for this session only. On a full disk it is
        in memory alone, and is written before the next change: a broker starts, and its logs can be read.
    (C) A journal larger than the snapshot and than `compact_bytes` is replaced: a new snapshot is written beside the
        old one, synced and renamed, then an empty journal likewise. A crash between the two renames leaves
        transactions that the snapshot has already: they are skipped.
    (D) A torn tail (the journal's cases A and B) is named in the log and gone after opening, since opening compacts
        then.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

import structlog

from odradek.broker.background.stepwise import in_steps
from odradek.broker.controller.journal_disk import JournalDisk
from odradek.broker.controller.metadata_journal import (
    JOURNAL_NAME,
    SNAPSHOT_NAME,
    JournalContent,
    encode_journal_header,
    encode_snapshot,
    encode_transaction,
    read_journal,
    read_snapshot,
)
from odradek.broker.controller.metadata_store import (
    ANY_VERSION,
    Change,
    Create,
    Delete,
    Entry,
    NoEntry,
    Operation,
    SessionListener,
    SessionState,
    Set,
    StoreDamaged,
    StoreUnavailable,
    Watch,
    WatchEvent,
)
from odradek.broker.controller.metadata_tree import MetadataTree, Transaction
from odradek.storage.files import Files, is_full

DEFAULT_COMPACT_BYTES = 1 << 20

RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]

log = structlog.get_logger("controller.store")


async def run_inline(work: Callable[[], None]) -> None:
    """The default `run_blocking`: does the work here and now."""
    work()


class EmbeddedMetadataStore:
    """A MetadataStore on two files in `directory`. One process at a time: the log directory's lock guards it.

    `run_blocking` runs writes and syncs (A); `compact_bytes` is the least journal size, in bytes, that is compacted
    (C).
    """

    def __init__(
        self,
        directory: str,
        files: Files,
        *,
        run_blocking: RunBlocking = run_inline,
        compact_bytes: int = DEFAULT_COMPACT_BYTES,
    ) -> None:
        self._disk = JournalDisk(directory, files)
        self._run_blocking = run_blocking
        self._compact_bytes = compact_bytes
        self._snapshot_bytes = 0
        self._tree = MetadataTree()
        self._session_epoch = 0
        self._unwritten: list[bytes] = []
        self._refusal: str | None = "it is not open"
        self._writing = asyncio.Lock()
        self._session_listeners: list[SessionListener] = []
        self._entry_watches: defaultdict[str, list[Watch]] = defaultdict(list)
        self._children_watches: defaultdict[str, list[Watch]] = defaultdict(list)

    @property
    def session_epoch(self) -> int:
        """See MetadataStore."""
        return self._session_epoch

    def add_session_listener(self, listener: SessionListener) -> None:
        """See MetadataStore."""
        self._session_listeners.append(listener)

    async def open(self) -> None:
        """Reads what is on disk. Raises StoreDamaged, or StoreUnavailable where the disk cannot be read or written."""
        self._tree = MetadataTree()
        self._unwritten.clear()
        try:
            await self._run_blocking(self._load)
        except OSError as error:
            raise StoreUnavailable("", f"cannot open the metadata store in {self._disk.directory}: {error}") from error
        self._refusal = None
        self._session_epoch += 1
        left_behind = self._tree.ephemeral_paths()
        if left_behind:
            await self.multi([Delete(path) for path in left_behind])
        log.info(
            "metadata store opened",
            directory=self._disk.directory,
            entries=len(self._tree),
            transaction=self._tree.number,
        )
        self._notify_listeners(SessionState.CONNECTED)

    async def close(self) -> None:
        """Removes the session's ephemeral entries and lets go of the files. May be called again, or before `open`."""
        if self._refusal is None:
            ephemeral = self._tree.ephemeral_paths()
            try:
                if ephemeral:
                    await self.multi([Delete(path) for path in ephemeral])
            except StoreUnavailable as error:
                log.warning("ephemeral entries stay until the next start", reason=str(error))
        async with self._writing:
            was_open = self._refusal is None
            self._refusal = "it is closed"
            self._disk.close()
        self._entry_watches.clear()
        self._children_watches.clear()
        if was_open:
            self._notify_listeners(SessionState.LOST)

    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """See MetadataStore."""
        self._check_open()
        entry = self._tree.get(path)
        if entry is None:
            raise NoEntry(path, "no such entry")
        if watch is not None:
            self._entry_watches[path].append(watch)
        return entry

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """See MetadataStore."""
        self._check_open()
        if watch is not None:
            self._entry_watches[path].append(watch)
        return self._tree.get(path)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See MetadataStore."""
        self._check_open()
        names = self._tree.children(path)
        if watch is not None:
            self._children_watches[path].append(watch)
        return names

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """See MetadataStore."""
        result = (await self.multi([Create(path, data, ephemeral, sequential)]))[0]
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> int:
        """See MetadataStore."""
        result = (await self.multi([Set(path, data, version)]))[0]
        assert isinstance(result, int)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Iterable[Operation]) -> list[str | int | None]:
        """See MetadataStore."""
        return await asyncio.shield(self._multi(operations))

    async def _multi(self, operations: Iterable[Operation]) -> list[str | int | None]:
        """Runs to its end though its caller be cancelled: what the journal has, the tree must have."""
        async with self._writing:
            self._check_open()
            transaction = await in_steps(self._tree.stage(operations))
            if transaction.entries:
                await self._write(transaction)
        self._fire(transaction.events)
        return transaction.results

    async def _write(self, transaction: Transaction) -> None:
        self._unwritten.append(encode_transaction(transaction.number, transaction.entries))
        lines = b"".join(self._unwritten)
        try:
            await self._run_blocking(lambda: self._disk.append(lines))
        except OSError as error:
            await self._take_back(error)
            if self._refusal is not None or not (is_full(error) and self._is_of_session(transaction)):
                self._unwritten.pop()
                raise StoreUnavailable("", f"cannot write {JOURNAL_NAME}: {error}") from error
        else:
            self._unwritten.clear()
        self._tree.apply(transaction.number, transaction.entries)
        if self._disk.journal_bytes > max(self._compact_bytes, self._snapshot_bytes):
            await self._compact_if_possible()

    def _is_of_session(self, transaction: Transaction) -> bool:
        """Whether it makes, changes or removes an ephemeral entry."""
        entries = [(entry or self._tree.get(path)) for path, entry in transaction.entries.items()]
        return any(entry is not None and entry.ephemeral for entry in entries)

    async def _take_back(self, cause: OSError) -> None:
        """Case (B)."""
        try:
            await self._run_blocking(self._disk.take_back)
        except OSError as error:
            self._refusal = f"a failed write ({cause}) could not be taken back: {error}"
        log.error(
            "metadata change not written",
            directory=self._disk.directory,
            error=str(cause),
            refusing=self._refusal is not None,
        )

    async def _compact_if_possible(self) -> None:
        """Case (C). A failure is no failure of the change that is written already: the journal goes on growing, and
        the next change tries again.
        """
        try:
            await self._run_blocking(self._compact)
        except OSError as error:
            log.warning("metadata journal not compacted", directory=self._disk.directory, error=str(error))
            if not self._disk.is_writable:
                self._refusal = f"its journal could not be replaced: {error}"

    def _compact(self) -> None:
        snapshot = encode_snapshot(self._tree)
        self._disk.replace(SNAPSHOT_NAME, snapshot)
        self._snapshot_bytes = len(snapshot)
        self._disk.replace_journal(encode_journal_header())
        self._unwritten.clear()

    def _load(self) -> None:
        snapshot = self._disk.read(SNAPSHOT_NAME)
        journal = self._disk.read(JOURNAL_NAME)
        if snapshot is not None:
            read_snapshot(SNAPSHOT_NAME, snapshot, self._tree)
            self._snapshot_bytes = len(snapshot)
        if journal is None:
            if snapshot is not None:
                raise StoreDamaged(
                    "",
                    f"metadata store damaged: {SNAPSHOT_NAME} without {JOURNAL_NAME} in {self._disk.directory}",
                )
            self._disk.replace_journal(encode_journal_header())
            return
        content = read_journal(JOURNAL_NAME, journal, self._tree)
        if content.torn:
            log.warning(
                "metadata journal ended in an unfinished change, which was dropped", directory=self._disk.directory
            )
            self._drop_tail(content)
        else:
            self._disk.open_journal(len(journal))

    def _drop_tail(self, content: JournalContent) -> None:
        """Case (D). On a full disk the tail is cut off; a change that it held whole is written with the next one."""
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
            raise StoreUnavailable("", f"the metadata store takes no requests: {self._refusal}")

    def _fire(self, events: list[WatchEvent]) -> None:
        for event in dict.fromkeys(events):
            watches: list[Watch] = []
            if event.change is not Change.CHILDREN:
                watches += self._entry_watches.pop(event.path, [])
            if event.change in (Change.CHILDREN, Change.DELETED):
                watches += self._children_watches.pop(event.path, [])
            for watch in watches:
                watch(event)

    def _notify_listeners(self, state: SessionState) -> None:
        for listener in list(self._session_listeners):
            listener(state)

"""Logs to follow: a leader's log with producers, transactions and epochs, and a disk that dies at any access."""

import random
from collections.abc import Callable
from typing import Any

from odradek.protocol.control_records import ControlType
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import build_end_transaction_marker, iter_batches
from odradek.storage.log.log import Log
from odradek.storage.segment.transaction_index import AbortedTransaction
from tests.memory_files import ForgetfulFiles, Inode
from tests.storage.small_logs import NOW, append, batch, idempotent, open_small

SETTINGS: dict[str, Any] = {"segment_bytes": 900, "index_interval_bytes": 150, "retention_ms": -1}
PRODUCERS = (1, 2, 3)


def leader_with(count: int, source: random.Random, **settings: Any) -> Log:
    """Returns a log of so many batches: plain, idempotent, transactional, markers, in growing epochs."""
    log = open_small(ForgetfulFiles(), **{**SETTINGS, **settings})
    lead_on(log, count, source)
    return log


def lead_on(log: Log, count: int, source: random.Random) -> None:
    epoch = max(log.leader_epochs.latest_epoch, 0)
    for _ in range(count):
        epoch += source.random() < 0.08
        append_any(log, source, epoch)


def append_any(log: Log, source: random.Random, epoch: int) -> None:
    values = [source.randbytes(source.randrange(60)) for _ in range(source.randrange(1, 4))]
    timestamp = NOW + source.randrange(1000)
    chance = source.random()
    if chance < 0.35:
        append(log, batch(*values, timestamp=timestamp), epoch)
        return
    producer_id = source.choice(PRODUCERS)
    entry = log.producers.state.producers.get(producer_id)
    is_open = log.producers.state.has_ongoing_transaction(producer_id)
    if is_open and chance < 0.6:
        kind = source.choice((ControlType.COMMIT, ControlType.ABORT))
        marker = build_end_transaction_marker(
            kind, timestamp=timestamp, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1
        )
        log.append_as_leader(marker, epoch, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.state.log_end_offset)
        return
    sequence = 0 if entry is None else entry.last_sequence + 1
    data = idempotent(
        sequence,
        *values,
        producer_id=producer_id,
        timestamp=timestamp,
        is_transactional=is_open or producer_id == PRODUCERS[-1],
    )
    append(log, data, epoch)


def stored_bytes(log: Log) -> bytes:
    """Returns all records of the log's files."""
    return b"".join(bytes(log.segments.use(segment).file.read(0, segment.size)) for segment in log.segments)


def fetched(leader: Log, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """Returns what a follower receives that fetches from the offset; its end may be cut off."""
    parts = []
    for position, header in iter_batches(data := stored_bytes(leader)):
        if header.last_offset >= offset:
            parts.append(data[position : position + header.size_in_bytes])
    return b"".join(parts)[:max_bytes]


def catch_up(log: Log, leader: Log, size: Callable[[], int] = lambda: 1 << 20) -> None:
    """Appends what the leader has, in fetches of these sizes, each with at least one batch."""
    while log.state.log_end_offset < leader.state.log_end_offset:
        data = fetched(leader, log.state.log_end_offset)
        if log.append_as_follower(data[: size()]) is None:
            log.append_as_follower(data[: next(iter_batches(data))[1].size_in_bytes])
    log.update_high_watermark(leader.state.high_watermark)


def aborted_transactions(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.transaction_index.entries()]


def described_producers(log: Log) -> dict[int, tuple[object, ...]]:
    """Returns what a snapshot would have about each producer."""
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.current_transaction_first_offset,
            [batch[:3] for batch in entry.batches[-1:]],  # not the time, which a snapshot has once per producer
        )
        for entry in log.producers.state.producers.values()
    }


def derived(log: Log) -> tuple[object, ...]:
    """Returns everything that a log keeps besides its records."""
    state = log.producers.state
    open_since = {first: transaction.producer_id for first, transaction in state.ongoing.items()}
    return (
        log.leader_epochs.entries,
        described_producers(log),
        open_since,
        aborted_transactions(log),
        state.map_end_offset,
    )


class Killed(BaseException):
    """The process has ended."""


class MortalFiles(ForgetfulFiles):
    """The process dies after `left` more accesses that write; None: it lives."""

    left: int | None = None

    def _live(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1

    def take(self, wanted: int) -> int:
        self._live()
        return super().take(wanted)

    def count_sync(self, path: str) -> None:
        self._live()
        super().count_sync(path)

    def _change(self, directory: str, added: dict[str, Inode | None], removed: list[str]) -> None:
        self._live()
        super()._change(directory, added, removed)

    def sync_directory(self, path: str) -> None:
        self._live()
        super().sync_directory(path)

    def after_kill(self) -> "MortalFiles":
        """The disk as other processes find it: everything that was written."""
        return self._as_mortal(self.crash_nothing())

    def crash_nothing(self) -> ForgetfulFiles:
        after = ForgetfulFiles(self.room)
        for path, inode in self.names.items():
            after.names[path] = after.durable_names[path] = (
                None if inode is None else Inode(bytes(inode.data), bytes(inode.data))
            )
        return after

    def after_power_cut(self, source: random.Random | None) -> "MortalFiles":
        return self._as_mortal(self.crash(source))

    @staticmethod
    def _as_mortal(files: ForgetfulFiles) -> "MortalFiles":
        mortal = MortalFiles(files.room)
        mortal.names, mortal.durable_names = files.names, files.durable_names
        return mortal

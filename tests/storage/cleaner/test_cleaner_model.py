"""A log compared with a model of a compacted log, a few lines long. Both are appended to, cleaned repeatedly and
restarted at random. Also the log after a crash at every step of a clean.

In the model, a clean keeps the last record of each key that is not aborted, and a tombstone until its batch's horizon
has passed. It removes nothing after the offset that it has reached.
"""

import random
from typing import Any

import pytest

from odradek.protocol.records import ControlType, read_control_type
from odradek.storage.cleaner.candidates import log_to_clean
from odradek.storage.log.log import Log
from tests.memory_files import ForgetfulFiles
from tests.soak import rounds, seeds
from tests.storage.cleaner.clean_logs import batches, clean, contents, end_transaction, put, seal
from tests.storage.small_logs import NOW, open_small

SEEDS = seeds(4, of=12, in_soak=600)
CRASH_SEEDS = range(rounds(2, in_soak=120))
RETENTION_MS = 1000
SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 900,
    "index_interval_bytes": 100,
    "delete_retention_ms": RETENTION_MS,
}
Entry = tuple[int, bytes | None, bytes | None]


class Batch:
    def __init__(self, records: list[Entry], transaction: "Transaction | None") -> None:
        self.records = records
        self.transaction = transaction
        self.horizon: int | None = None

    @property
    def aborted(self) -> bool:
        return self.transaction is not None and self.transaction.outcome is False


class Transaction:
    outcome: bool | None = None
    marker = -1


def reference_clean(model: list[Batch], first_dirty: int, end: int, touched: int, now: int) -> None:
    """`touched`: the end offsets of the segments that the clean has read."""
    latest = {
        key: offset
        for entry in model
        if not entry.aborted
        for offset, key, _ in entry.records
        if first_dirty <= offset < end
    }
    for entry in model:
        if entry.aborted:
            entry.records = [record for record in entry.records if record[0] >= touched]
            continue
        is_over = entry.horizon is not None and now >= entry.horizon
        entry.records = [
            (offset, key, value)
            for offset, key, value in entry.records
            if offset >= end or (latest.get(key, -1) <= offset and not (value is None and is_over))
        ]
        kept = [record for record in entry.records if record[0] < touched]
        if entry.horizon is None and any(value is None for _, _, value in kept):
            entry.horizon = now + RETENTION_MS


class Run:
    def __init__(self, seed: int, files: ForgetfulFiles | None = None) -> None:
        self.random = random.Random(seed)
        self.files = files or ForgetfulFiles()
        self.files.make_directories("/data")
        self.files.make_durable()
        self.now = NOW
        self.model: list[Batch] = []
        self.open: dict[int, Transaction] = {}
        self.ended: list[Transaction] = []
        self.sequences: dict[int, int] = {}
        self.log = open_small(self.files, **SETTINGS)
        self.files.sync_directory("/data")

    def append(self) -> None:
        producer_id = self.random.choice([-1, -1, 1, 2, 3])
        count = self.random.randrange(1, 5)
        pairs = [(b"%d" % self.random.randrange(12), self._value()) for _ in range(count)]
        options: dict[str, Any] = {"compression": self.random.choice([0, 0, 0, 1, 2, 3, 4])}
        transaction = None
        if producer_id > 0:
            sequence = self.sequences.get(producer_id, 0)
            options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer_id] = sequence + count
            if producer_id in self.open or self.random.random() < 0.4:
                transaction = self.open.setdefault(producer_id, Transaction())
                options["is_transactional"] = True
        first = put(self.log, *pairs, time=self.now - self.random.randrange(500), **options)
        self.model.append(Batch([(first + i, *pair) for i, pair in enumerate(pairs)], transaction))

    def _value(self) -> bytes | None:
        return None if self.random.random() < 0.2 else b"v" * self.random.randrange(40)

    def end_one(self) -> None:
        if self.open:
            producer_id = self.random.choice(sorted(self.open))
            transaction = self.open.pop(producer_id)
            transaction.outcome = self.random.random() < 0.5
            transaction.marker = end_transaction(self.log, producer_id, transaction.outcome, time=self.now)
            self.ended.append(transaction)

    def seal(self) -> None:
        seal(self.log)

    def pass_time(self) -> None:
        self.now += self.random.randrange(800)

    def clean(self) -> None:
        if not log_to_clean(self.log, self.now).cleanable_bytes:
            return
        map_bytes = self.random.choice([600, 1200, 64 << 20])
        before = self.log.state.cleaned_offset or 0
        bases = [*self.log.segments.base_offsets]
        done = clean(self.log, self.now, map_bytes, self.random.choice([1, 300, 4096]))
        touched = next((base for base in bases if base >= done.end_offset), bases[-1])
        reference_clean(self.model, before, done.end_offset, touched, self.now)

    def restart(self) -> None:
        cleaned = self.log.state.cleaned_offset
        self.log.close()
        self.log = open_small(self.files, **SETTINGS, options={"high_watermark": self.log.state.log_end_offset})
        self.log.state.cleaned_to(cleaned)

    def step(self) -> None:
        chances = {self.append: 10, self.end_one: 3, self.seal: 3, self.pass_time: 2, self.clean: 3, self.restart: 1}
        self.random.choices(list(chances), list(chances.values()))[0]()

    def check(self) -> None:
        expected = [record for entry in self.model for record in entry.records]
        assert contents(self.log) == expected
        self.check_transactions()
        for producer_id, sequence in self.sequences.items():
            assert self.log.producers.state.producers[producer_id].last_sequence == sequence - 1

    def check_transactions(self) -> None:
        """For every readable record of a transaction, the marker is there, and the transaction index has the abort, if
        any.
        """
        markers = {header.base_offset for header, records in batches(self.log) if header.is_control and records}
        indexed = {
            transaction.last_offset
            for segment in self.log.segments
            for transaction in segment.transaction_index.entries()
        }
        for entry in self.model:
            if entry.records and entry.transaction is not None and entry.transaction.outcome is not None:
                assert entry.transaction.marker in markers
                if entry.aborted:
                    assert entry.transaction.marker in indexed


@pytest.mark.soak("600 seeds", minutes=2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_randomly_cleaned_log_keeps_what_the_model_keeps(seed: int) -> None:
    run = Run(seed)
    for _ in range(250):
        run.step()
        run.check()


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_all_markers_except_required_ones_are_eventually_removed(seed: int) -> None:
    run = Run(seed)
    for _ in range(150):
        run.step()
    while run.open:
        run.end_one()
    for number in range(10):
        if number == 5:
            run.log.producers.state.clear()  # their producers have expired: nothing must stay for them
        run.now += 2 * RETENTION_MS
        put(run.log, (b"last", b""))
        run.seal()
        clean(run.log, run.now)
    with_data = {header.producer_id for header, records in batches(run.log) if header.is_transactional and records}
    for header, records in batches(run.log):
        if header.is_control and records:
            assert header.producer_id in with_data
            assert read_control_type(records[0].key) is ControlType.COMMIT
    assert not any(value is None for _, _, value in contents(run.log))


def committed_state(log: Log, run: Run) -> dict[bytes | None, bytes]:
    """Returns what a read_committed consumer has in the end: the last value of each key."""
    outcome = {offset: entry for entry in run.model for offset, _, _ in entry.records}
    state: dict[bytes | None, bytes] = {}
    for offset, key, value in contents(log):
        entry = outcome.get(offset)
        if entry is None or entry.aborted or offset >= run.log.last_stable_offset:
            continue
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


class WatchedFiles(ForgetfulFiles):
    """Calls `watch` before every change of a name and every sync."""

    watch: Any = None

    def _change(self, directory: str, added: Any, removed: list[str]) -> None:
        if self.watch is not None:
            self.watch()
        super()._change(directory, added, removed)

    def count_sync(self, path: str) -> None:
        if self.watch is not None:
            self.watch()
        super().count_sync(path)

    def sync_directory(self, path: str) -> None:
        if self.watch is not None:
            self.watch()
        super().sync_directory(path)


@pytest.mark.soak("120 seeds, a crash at every step", minutes=2)
@pytest.mark.parametrize("seed", CRASH_SEEDS)
def test_a_crash_at_any_step_of_a_clean_loses_nothing(seed: int) -> None:
    files = WatchedFiles()
    run = Run(seed, files)
    for _ in range(120):
        run.step()
    run.seal()
    log = run.log
    before = contents(log)
    expected = committed_state(log, run)
    cleaned, recovery_point, end = log.state.cleaned_offset, log.flusher.safe_recovery_point, log.state.log_end_offset
    everything = {entry[0]: entry for entry in before}
    crashes = 0

    def crash(source: random.Random | None) -> None:
        nonlocal crashes
        crashes += 1
        disk = files.crash(source)
        again = open_small(
            disk,
            **SETTINGS,
            options={"clean": False, "contiguous": True, "recovery_point": recovery_point, "high_watermark": end},
        )
        assert again.state.log_end_offset == end
        assert all(everything[entry[0]] == entry for entry in contents(again))
        assert committed_state(again, run) == expected
        assert not [name for name in disk.list_directory(log.folder.path) if name.endswith((".cleaned", ".swap"))]
        again.state.cleaned_to(cleaned)
        again.segments.unsynced.clear()
        clean(again, run.now)
        assert committed_state(again, run) == expected
        for producer_id, entry in log.producers.state.producers.items():
            assert again.producers.state.producers[producer_id].last_sequence == entry.last_sequence

    def watch() -> None:
        files.watch = None
        crash(None)
        crash(random.Random(crashes))
        files.watch = watch

    files.watch = watch
    clean(log, run.now)
    files.watch = None
    crash(None)
    assert committed_state(log, run) == expected
    assert crashes > 10

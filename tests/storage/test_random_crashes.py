"""A log on a disk that loses unsynced data, compared with a model: appended to, flushed, truncated, restarted and
crashed at random.

Everything that was flushed survives a crash; no record appears that was not appended; reads return what was appended;
producers keep their sequences. The name of a failing test contains the seed.
"""

import random

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import Truncate
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.soak import seeds
from tests.storage.small_logs import NOW, all_bytes, batch, bytes_of, headers_of, idempotent, truncate_in

SEEDS = seeds(6, of=20, in_soak=1_200)
STEPS = 120
PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig({"segment.bytes": 700, "index.interval.bytes": 100, "retention.ms": -1})


class Model:
    """Batches as stored: (base offset, last offset, bytes). Nothing below `flushed` may be lost."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = 0
        self.flushed = 0
        self.checkpointed_start = 0

    @property
    def end(self) -> int:
        return max(self.batches[-1][1] + 1 if self.batches else 0, self.start)

    def readable(self) -> bytes:
        return b"".join(data for _, last, data in self.batches if last >= self.start)


class Run:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(wall_ms=NOW)
        self.disk = ForgetfulFiles()
        self.disk.make_directories("/data")
        self.disk.make_durable()
        self.model = Model()
        self.sequences: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        self.manager = LogManager(["/data"], self.disk, self.clock, random_source=random.Random(1))
        self.manager.open()
        self.manager.claim(1, "cluster")
        self.manager.load(lambda topic: CONFIG)
        self.log: Log = self.manager.get_or_create(PARTITION, None, CONFIG)

    # ---- steps

    def append(self) -> None:
        producer_id = self.random.choice([-1, -1, 1, 2])
        values = [b"v" * self.random.randrange(60) for _ in range(self.random.randrange(1, 4))]
        timestamp = NOW + self.random.randrange(1000)
        if producer_id < 0:
            data = batch(*values, timestamp=timestamp)
        else:
            sequence = self.sequences.get(producer_id, 0)
            data = idempotent(sequence, *values, producer_id=producer_id, timestamp=timestamp)
            self.sequences[producer_id] = sequence + len(values)
        size = self.log.segments.size_in_bytes
        info = self.log.append_as_leader(data, 0, api_version=9)
        assert info.first_offset == self.model.end
        self.log.update_high_watermark(self.log.state.log_end_offset)
        stored = bytes_of(self.log.reader.read(info.first_offset, 1))
        assert self.log.segments.size_in_bytes - size == len(stored) == len(data)
        self.model.batches.append((info.first_offset, info.last_offset, stored))

    def append_again(self) -> None:
        """A producer that did not receive the response sends its last batch again."""
        last = [header for header in headers_of(self.log) if header.producer_id > 0]
        if last:
            stored = next(data for base, _, data in self.model.batches if base == last[-1].base_offset)
            again = bytes(8) + stored[8:12] + b"\xff" * 4 + stored[16:]
            info = self.log.append_as_leader(again, 0, api_version=9)
            assert (info.duplicate, info.first_offset) == (True, last[-1].base_offset)

    def flush(self) -> None:
        job = self.log.begin_flush()
        if job is not None:
            job.run()
            self.log.flusher.finish(job)
        assert self.log.state.recovery_point == self.model.end
        self.model.flushed = self.model.end

    def flush_of_the_past(self) -> None:
        """A slow flush covers the records that existed when it began."""
        job = self.log.begin_flush()
        end = self.model.end
        self.append()
        if job is not None:
            job.run()
            self.log.flusher.finish(job)
            self.model.flushed = max(self.model.flushed, end)

    def background(self) -> None:
        for log, job in filter(None, self.manager.take_flush_jobs()):
            job.run()
            log.flusher.finish(job)
        self.manager.checkpoints.write(RECOVERY_POINT)
        self.manager.checkpoints.write(HIGH_WATERMARK)
        self.manager.checkpoints.write(LOG_START_OFFSET)
        self.model.checkpointed_start = self.model.start

    def delete_records(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.start.delete_records_before(offset)
        self.log.apply_retention(self.clock.wall_ms())
        self.model.start = max(self.model.start, offset)

    def truncate(self) -> None:
        low = max(self.model.flushed, self.model.start)
        bounds = [base for base, _, _ in self.model.batches if base >= low]
        if bounds:
            offset = self.random.choice(bounds)
            assert truncate_in(self.manager, {PARTITION: Truncate(offset)}) == {PARTITION: None}
            self.model.batches = [entry for entry in self.model.batches if entry[0] < offset]
            self.learn_sequences()

    def restart(self) -> None:
        self.manager.shutdown()
        self.open()
        self.model.flushed = self.model.end
        assert self.log.state.log_end_offset == self.model.end
        assert self.log.state.high_watermark == self.model.end

    def crash(self) -> None:
        self.disk = self.disk.crash(self.random if self.random.random() < 0.7 else None)
        self.open()
        end = self.log.state.log_end_offset
        flushed = self.model.flushed if self.model.flushed > self.model.start else 0  # deleted records need not survive
        assert flushed <= end <= self.model.end, (flushed, end, self.model.end)
        self.model.flushed = min(self.model.flushed, end)
        assert self.model.checkpointed_start <= self.log.state.log_start_offset
        self.model.batches = [entry for entry in self.model.batches if entry[1] < end]
        self.model.start = self.log.state.log_start_offset
        assert self.model.end == end
        self.log.update_high_watermark(end)
        self.learn_sequences()

    def learn_sequences(self) -> None:
        self.sequences = {}
        for _, _, data in self.model.batches:
            ((_, header),) = iter_batches(data)
            if header.producer_id > 0:
                self.sequences[header.producer_id] = header.last_sequence + 1
        known = self.log.producers.state.producers
        for producer_id in [producer_id for producer_id in self.sequences if producer_id not in known]:
            del self.sequences[
                producer_id
            ]  # all its batches are before the log's start: it may start with any sequence
        for producer_id, next_sequence in self.sequences.items():
            assert known[producer_id].last_sequence + 1 == next_sequence

    # ---- invariants

    def check(self) -> None:
        log, model = self.log, self.model
        assert (log.state.log_start_offset, log.state.log_end_offset) == (model.start, model.end)
        assert all_bytes(log) == model.readable()
        offset = self.random.randint(model.start - 1, model.end + 1)
        if model.start <= offset < model.end:
            found = next(iter_batches(bytes_of(log.reader.read(offset, 1))))[1]
            assert found.base_offset <= offset <= found.last_offset
        elif offset != model.end:
            with pytest.raises(ProtocolError) as error:
                log.reader.read(offset, 1)
            assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        self.check_time(NOW + self.random.randrange(1100))

    def check_time(self, asked: int) -> None:
        found = finished(self.log.search.offset_for_timestamp(asked))
        expected = None
        for base, last, data in self.model.batches:
            ((_, header),) = iter_batches(data)
            if last >= self.model.start and header.max_timestamp >= asked:
                expected = max(base, self.model.start)
                break
        assert (None if found is None else found.offset) == expected


WEIGHTS = {
    Run.append: 40,
    Run.append_again: 5,
    Run.flush: 6,
    Run.flush_of_the_past: 4,
    Run.background: 6,
    Run.delete_records: 2,
    Run.truncate: 2,
    Run.restart: 3,
    Run.crash: 5,
}


@pytest.mark.soak("1,200 seeds", minutes=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_flushed_records_survive_and_nothing_else_appears(seed: int) -> None:
    run = Run(seed)
    steps = run.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS)
    for step in steps:
        step(run)
        run.check()

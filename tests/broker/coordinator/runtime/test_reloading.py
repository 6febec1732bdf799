"""After any decisions and a stop at any point, a reloaded shard has the state of the live one."""

from pathlib import Path
from random import Random

import pytest

from odradek.protocol.records import Compression
from tests.broker.coordinator.runtime.harness import PARTITION, RecordingShard, RuntimeHarness, runtime_harness
from tests.soak import seeds

STEPS = 150


def take_a_step(harness: RuntimeHarness, random: Random) -> None:
    choice = random.random()
    records = [
        (b"key %d" % random.randrange(12), None if random.random() < 0.3 else random.randbytes(random.randrange(60)))
        for _ in range(random.randrange(1, 5))
    ]
    producer_id = random.randrange(3)
    if choice < 0.4:
        harness.write(*records)
    elif choice < 0.7:
        harness.write(*records, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    elif choice < 0.85:
        harness.mark(producer_id, committed=random.random() < 0.5)
    elif choice < 0.95:
        harness.disk.full = True
        harness.write(*records)
        harness.disk.full = False
    else:
        harness.manager.partitions.find(PARTITION).log.roll()


def state_of(shard: RecordingShard) -> tuple[object, object]:
    return shard.values, {producer_id: records for producer_id, records in shard.pending.items() if records}


@pytest.mark.parametrize("seed", seeds(2, of=4))
def test_a_reloaded_shard_has_the_state_of_the_live_one(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    codec = random.choice([Compression.NONE, Compression.GZIP, Compression.LZ4])
    with runtime_harness(tmp_path, compression=codec, load_buffer_bytes=random.choice([1, 300, 100_000])) as harness:
        harness.lead(segment_bytes=2000, compression_type="producer")
        seen = set()
        for _ in range(STEPS):
            take_a_step(harness, random)
            live = harness.shard
            assert state_of(harness.load_again()) == state_of(live)
            seen.add(bool(live.values) + 2 * bool(live.pending))
        assert seen >= {1, 3}


def test_a_restart_after_a_kill_restores_the_state_of_the_live_shard(tmp_path: Path) -> None:
    random = Random(9)
    expected = None
    for start in range(10):
        with runtime_harness(tmp_path) as harness:
            harness.lead(segment_bytes=2000, epoch=start)
            harness.tasks.run()
            if expected is not None:
                assert state_of(harness.shard) == expected
            for _ in range(20):
                take_a_step(harness, random)
            expected = state_of(harness.shard)

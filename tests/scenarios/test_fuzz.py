"""Mutated frames: the broker answers or closes, never hangs, never logs a traceback, and its memory stays flat."""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

import pytest

from odradek.broker.handlers.api_table import api_table
from odradek.protocol.api_keys import ApiKey
from tests.base_requests import Known
from tests.scenarios.fuzzer import TOPIC, Mutator, Outcomes, newer_seed_frames, seed_frames
from tests.scenarios.known_world import SETTINGS as OF_THE_WORLD
from tests.scenarios.known_world import KnownWorld
from tests.soak import rounds
from tests.spawned_broker import spawned_broker

FRAMES = int(os.environ.get("ODRADEK_FUZZ_FRAMES", rounds(3_000, in_soak=200_000)))
SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "20"))
TIMES = 10
"""How often names that frames have deleted exist again, after the memory was measured first."""
TELEMETRY = {(int(key), 0) for key in (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)}
"""Served, since a setting says so."""
SETTINGS = {
    **{name: str(value).lower() for name, value in OF_THE_WORLD.items()},
    "odradek.client.metrics.enable": "true",
    "odradek.metrics.port": "0",
    "log.retention.bytes": "10000000",
    "log.segment.bytes": "1000000",
    "log.retention.check.interval.ms": "1000",
}


@pytest.mark.long
@pytest.mark.soak("200,000 mutated frames, and as many of what Kafka 4.4 has added", minutes=8)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("of", ["all versions", "newer versions"])
def test_mutated_frames_cause_no_hang_no_traceback_and_no_memory_growth(tmp_path: Path, of: str) -> None:
    ranges = {int(row.key): row.served for row in api_table().client_rows()}
    served = {
        (key, version) for key, versions in ranges.items() for version in range(versions.lowest, versions.highest + 1)
    } | TELEMETRY
    outcomes = Outcomes()
    with spawned_broker(tmp_path / "data", SETTINGS) as broker:
        world = KnownWorld(broker.bootstrap, Known(TOPIC))

        def seeds() -> list[bytes]:
            known = world.restore()
            return seed_frames(served, known.topic_id) if of == "all versions" else newer_seed_frames(served, known)

        def memory() -> int:
            return int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

        mutator = Mutator(seeds(), random.Random(SEED))
        outcomes.throw(broker.bootstrap, mutator.payloads(), FRAMES // 3)
        warm = memory()
        for _ in range(TIMES):
            mutator.seeds = seeds()
            outcomes.throw(broker.bootstrap, mutator.payloads(), (FRAMES - FRAMES // 3) // TIMES)
        grown = memory() - warm
        world.close()
        assert broker.process.poll() is None
        assert "Traceback" not in broker.log_text()
        assert grown < 24 * 1024 * 1024, f"{grown} bytes after {FRAMES} frames"
    assert outcomes.answered > FRAMES // 10
    assert outcomes.closed > FRAMES // 10

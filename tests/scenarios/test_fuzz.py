"""Mutated frames: the broker answers or closes, never hangs, never logs a traceback, and its memory stays flat."""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path
from uuid import UUID

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.broker.handlers.api_table import api_table
from tests.scenarios.fuzzer import TOPIC, Mutator, Outcomes, seed_frames
from tests.soak import rounds
from tests.spawned_broker import spawned_broker

FRAMES = int(os.environ.get("ODRADEK_FUZZ_FRAMES", rounds(3_000, in_soak=200_000)))
SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "20"))
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.bytes": "10000000",
    "log.segment.bytes": "1000000",
    "log.retention.check.interval.ms": "1000",
}


@pytest.mark.long
@pytest.mark.soak("200,000 mutated frames", minutes=3)
@pytest.mark.timeout(1800)
def test_mutated_frames_cause_no_hang_no_traceback_and_no_memory_growth(tmp_path: Path) -> None:
    served = {int(row.key) for row in api_table().client_rows()}
    outcomes = Outcomes()
    with spawned_broker(tmp_path / "data", SETTINGS) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=1)])
        (topic,) = admin.describe_topics([TOPIC])
        admin.close()
        seeds = seed_frames(served, UUID(str(topic["topic_id"])))
        payloads = Mutator(seeds, random.Random(SEED)).payloads()

        def memory() -> int:
            return int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

        outcomes.throw(broker.bootstrap, payloads, FRAMES // 3)
        warm = memory()
        outcomes.throw(broker.bootstrap, payloads, FRAMES - FRAMES // 3)
        grown = memory() - warm
        assert broker.process.poll() is None
        assert "Traceback" not in broker.log_text()
        assert grown < 24 * 1024 * 1024, f"{grown} bytes after {FRAMES} frames"
    assert outcomes.answered > FRAMES // 10
    assert outcomes.closed > FRAMES // 10
